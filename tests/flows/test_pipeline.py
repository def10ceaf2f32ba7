"""The whole pipeline with real parts, as small as it gets, on a real Prefect server."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId, TaskRunFilter
from prefect.events.worker import EventsWorker
from rich.console import Console
from server_pages import all_pages
from waiting import LIMIT_S, eventually

from flows.cli import run as dojo
from flows.commands.stages import show_results
from flows.evaluate import evaluate
from flows.index import index
from flows.pipeline import pipeline
from flows.presets import build_parameters, preset
from flows.train import train
from kernel_core.config import (
    EvaluateConfig,
    IndexConfig,
    IngestConfig,
    PipelineConfig,
    PolicyConfig,
    ProblemsConfig,
)
from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import ConfigError, Corrupt
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.policy import open_policy
from kernel_core.problems.generate import generate
from kernel_core.report.taught import taught_rows
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.naming import BEFORE
from kernel_core.runs.resolve import locate_checkpoint
from kernel_core.runs.run_folder import Run

TASKS = [
    *("train policy", "score policy", "asset ingest"),
    *("format, from step 1", "problems 1 to 2 of 2", "winners 1 of 2", "winners 2 of 2"),
]
STAGES = ["ingest", "index", "cold-start", "evaluate-before", "train", "evaluate-after", "best-of-n"]


def smoke(root) -> PipelineConfig:
    """The smoke preset under another root."""
    config = build_parameters("pipeline", preset("pipeline", "smoke"))["config"]
    assert isinstance(config, PipelineConfig)
    ingest = IngestConfig(generator_rows=40, decontaminate_against=("dojo",))
    return config.model_copy(update={"root": str(root), "ingest": ingest})


@pytest.fixture(scope="module")
def finished(prefect_api, tmp_path_factory):
    """A run of the smoke preset that went through; its judges stay open for the tests after it."""
    config = smoke(tmp_path_factory.mktemp("runs"))
    with judges_kept():
        pipeline(config)
        EventsWorker.drain_all(timeout=LIMIT_S)
        yield config


def task_runs():
    """Task runs by name. The server makes them of events, some time after a flow has ended: it is asked until
    all have ended, those of the last stage among them."""

    def latest():
        with get_client(sync_client=True) as client:
            named = TaskRunFilter(name={"any_": TASKS})
            return {run.name: run for run in client.read_task_runs(task_run_filter=named)}

    def are_over(runs):
        return runs.keys() == set(TASKS) and all(run.state.is_final() for run in runs.values())

    return eventually(latest, are_over)


def test_every_stage_is_done_in_order_and_the_run_says_finished(finished):
    run = Run(finished.root, finished.run)
    assert [record.stage for record in run.stages()] == STAGES
    assert all(record.status == "done" and record.output for record in run.stages())
    assert run.state().condition == "finished"


def test_the_run_has_the_files_that_people_look_for(finished):
    names = Run(finished.root, finished.run).store.names()
    assert {"logs.log", "metrics.jsonl", "checkpoints.jsonl", "tensorboard", "turns", "evaluations"} <= set(
        names
    )


def test_the_table_of_taught_policies_has_the_cold_start_with_its_scorecard(finished, capsys):
    rows = {row["scorecard"]: row for row in taught_rows([Run(finished.root, finished.run)])}
    row = rows[BEFORE]
    assert (row["taught"], row["updates"]) == ("cold_start", 4)
    assert 0 < row["entropy"] < math.log(finished.train.policy.vocab_size)
    assert row["pass@1"].startswith("0.0 %") and row["held-back loss"] > 0
    assert dojo(["runs", "taught", finished.run, "--root", finished.root]) == 0
    assert BEFORE in capsys.readouterr().out


def test_its_checkpoint_opens_as_a_policy(finished):
    folder = locate_checkpoint(finished.root, finished.run)
    assert folder.endswith("step-000002")
    assert locate_checkpoint(finished.root, f"{finished.run}@1").endswith("step-000001")
    assert "/step-" in locate_checkpoint(finished.root, f"{finished.run}@best")
    open_policy(PolicyConfig(), folder).close()


def test_the_same_command_again_computes_nothing_but_a_report_that_is_gone(finished):
    run = Run(finished.root, finished.run)
    before = run.stages()
    Path(run.store.path("report.html")).unlink()
    pipeline(finished)
    assert run.stages() == before
    assert run.store.exists("report.html")


COMMAND_AND_ITS_MODULES = """
import sys
from flows.cli import run
code = run(sys.argv[1:])
print("modules:", *sorted(name for name in sys.modules if "." not in name))
sys.exit(code)
"""


@pytest.mark.exhaustive
def test_a_command_with_nothing_to_do_imports_nothing_that_does_the_work(finished, prefect_api):
    words = ["pipeline", "smoke", f"root={finished.root}", "ingest.decontaminate_against=[dojo]"]
    again = subprocess.run(
        [sys.executable, "-c", COMMAND_AND_ITS_MODULES, *words],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PREFECT_API_URL": prefect_api},
        capture_output=True,
        text=True,
    )
    assert again.returncode == 0, again.stderr
    imported = set(again.stdout.rpartition("modules:")[2].split())
    assert "prefect" in imported
    slow_to_import = {"torch", "triton", "transformers", "datasets", "pandas", "matplotlib"}
    assert not slow_to_import & imported


def test_other_settings_under_the_same_name_are_refused(finished):
    other = finished.model_copy(update={"ingest": finished.ingest.model_copy(update={"generator_rows": 41})})
    with pytest.raises(ConfigError, match=r"generator_rows = 40, now 41.*run=NAME"):
        pipeline(other)
    assert Run(finished.root, finished.run).state().condition == "finished"


@pytest.mark.exhaustive
def test_a_longer_training_goes_on_from_the_shorter_one(finished, prefect_api):
    longer = finished.train.model_copy(update={"steps": 3})
    train(longer, run=finished.run, root=finished.root, ingest=finished.ingest, index=finished.index)
    lines = list(Run(finished.root, finished.run).store.lines("metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


def test_a_person_sees_scorecards_stages_winners_files_and_where_the_ui_is(finished, capsys):
    console = Console(width=100, force_terminal=False)
    show_results("pipeline", {"config": finished}, "some-id", console)
    shown = capsys.readouterr().out
    for words in ("correct_rate", "before", "after", "format", "best of 2", "Files:", "dojo ui", "some-id"):
        assert words in shown


def test_in_the_ui_stages_are_subflows_named_by_run_stage_and_model(finished):
    with get_client(sync_client=True) as client:
        runs = all_pages(client.read_flow_runs)
        (parent,) = [
            run
            for run in runs
            if run.name == "smoke: new"
            and run.start_time == min(other.start_time for other in runs if other.name == "smoke: new")
        ]
        below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent.id]))
        stages = sorted(client.read_flow_runs(flow_run_filter=below), key=lambda run: run.start_time)
    assert [stage.name for stage in stages] == [
        "smoke ingest",
        "smoke index",
        "smoke cold-start: new",
        "smoke evaluate-before: new",
        "smoke train: new",
        "smoke evaluate-after: smoke",
        "smoke best-of-n: smoke",
    ]


def test_each_stage_of_the_curriculum_is_a_task_run_that_says_how_it_ended(finished):
    with get_client(sync_client=True) as client:
        stage = task_runs()["format, from step 1"]
        tables = {
            artifact.key for artifact in all_pages(client.read_artifacts) if artifact.task_run_id == stage.id
        }
    assert stage.state.message == "The training ended in this stage, after step 2."
    assert "smoke-stage-format" in tables


def test_problems_are_task_runs_that_say_what_came_of_them(finished):
    messages = {name: run.state.message for name, run in task_runs().items()}
    assert (finished.evaluate.problems.limit, finished.best_of_n.problems.limit) == (2, 2)
    assert "of 2 problems solved" in messages["problems 1 to 2 of 2"]
    assert messages["winners 1 of 2"].startswith("generated/")


def test_the_summary_has_verdicts_the_next_step_and_what_each_stage_made(finished):
    with get_client(sync_client=True) as client:
        (page, *_) = [row.data for row in all_pages(client.read_artifacts) if row.key == "smoke-summary"]
    assert "| answers malformed | " in page and "cut off by the token limit" in page
    assert "**Next step:**" in page
    records = {record.stage: record for record in Run(finished.root, finished.run).stages()}
    assert f"| index | {records['index'].output[:12]} | snapshot {records['ingest'].output[:12]}" in page
    assert f"weights {records['train'].output[:12]} of train" in page


def assets_of(run):
    """Assets of a run by their place in its folder, each with those that it was made of."""
    asked = {"filter": {"event": {"prefix": ["prefect.asset.materialization.succeeded"]}}, "limit": 50}
    with get_client(sync_client=True) as client:
        events = client._client.post("/events/filter", json=asked).json()["events"]
    inside, made = f"/{run}/", {}
    for event in events:
        made_of = [one["prefect.resource.id"] for one in event["related"] if "asset" in one.values()]
        address = event["resource"]["prefect.resource.id"]
        if inside in address:
            made[address.rpartition(inside)[2]] = {one.rpartition(inside)[2] for one in made_of}
            assert event["payload"]["digest"]
    return made


def test_what_stages_make_are_assets_with_the_assets_that_they_are_made_of(finished):
    made = eventually(lambda: assets_of(finished.run), lambda made: "best-of-n" in made)
    assert made["index"] == {"snapshot"}
    assert made["cold_start"] == {"snapshot", "index"}
    assert made["checkpoints/step-000002"] == {"snapshot", "index", "cold_start"}
    assert made["evaluate-before"] == {"index", "cold_start"}
    assert made["evaluate-after"] == made["best-of-n"] == {"index", "checkpoints/step-000002"}


def test_a_code_page_has_the_best_and_the_worst_answers_first(finished):
    with get_client(sync_client=True) as client:
        (page, *_) = [
            row.data for row in all_pages(client.read_artifacts) if row.key == "smoke-evaluate-after-code"
        ]
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## Best (2)", "## Worst (2)", "## Best answer to every problem (2)"]


def test_the_page_of_a_run_has_all_that_it_made(finished, capsys):
    assert dojo(["runs", "show", finished.run, "--root", finished.root, "--html"]) == 0
    file = Path(capsys.readouterr().out.strip())
    page = file.read_text()
    sections = re.findall(r"<h2 id=s\d+>([^<]*)</h2>", page)
    assert sections == [
        "before and after",
        "evaluate-after",
        "evaluate-before",
        "best-of-n",
        "training",
        *(["what happened"] if "what happened" in sections else []),
        "curves",
        "what it writes",
        "what each stage made, of what",
        "settings",
    ]
    for words in (
        "Next step: ",
        "suite generated, split held_out",
        "by family",
        "group_size",
        "why none",
    ):
        assert words in page
    assert page.count("<table class=full>") == 3 * 2 + 1 + 1
    assert not re.search(r"(src|href)='?\"?https?:", page), "the page needs no network"


def test_each_stage_leaves_artifacts(finished):
    with get_client(sync_client=True) as client:
        keys = {artifact.key for artifact in all_pages(client.read_artifacts)}
    assert {
        "smoke-corpus",
        "smoke-index",
        "smoke-metrics",
        "smoke-learning-curves",
        "smoke-evaluate-before-summary",
        "smoke-evaluate-after-problems",
        "smoke-best-of-n",
        "smoke-summary",
        "smoke-train-progress",
        "smoke-train-settings",
        "smoke-report",
    } <= keys


def test_every_artifact_says_what_it_is_and_the_summary_leads_with_the_verdict(finished):
    with get_client(sync_client=True) as client:
        artifacts = [row for row in all_pages(client.read_artifacts) if (row.key or "").startswith("smoke-")]
    assert artifacts and all(row.description for row in artifacts)
    settings = next(row for row in artifacts if row.key == "smoke-evaluate-after-settings")
    assert "model " in settings.description and "split held_out" in settings.description
    summary = next(row for row in artifacts if row.key == "smoke-summary").data
    lead = summary.split("## ")[0]
    assert "RL did not make it clearly better" in lead or "RL made it clearly better" in lead
    assert "Faster than eager (predicted): " in lead and " 0.0 of them on a GPU" in lead
    assert "Cost: " in lead and sum(line.startswith("- ") for line in lead.splitlines()) <= 10
    assert {"train policy", "score policy", "asset ingest"} <= task_runs().keys()  # no random suffixes


def test_a_damaged_snapshot_is_refused_by_name(prefect_api, tmp_path):
    snapshot = Run(str(tmp_path), "hurt").store.child("snapshot")
    snapshot.seal("snapshot", {"exemplars.parquet": snapshot.write("exemplars.parquet", b"rows")}, meta={})
    snapshot.write("exemplars.parquet", b"not what it was")
    with pytest.raises(Corrupt, match=r"exemplars\.parquet does not match its checksum"):
        index(IndexConfig(), run="hurt", root=str(tmp_path))


@pytest.mark.parametrize(
    ("damaged", "command"),
    [
        ("index/vectors.faiss", ["search", "softmax", "--run", "{run}", "--root", "{root}"]),
        ("checkpoints/{newest}/model.safetensors", ["evaluate", "checkpoint={newest_path}", "root={root}"]),
    ],
)
def test_what_was_damaged_is_refused_by_name(finished, tmp_path, capsys, damaged, command):
    whole = Run(finished.root, finished.run)
    hurt = Run(str(tmp_path), "hurt")
    shutil.copytree(whole.store.path(), hurt.store.path())
    newest = hurt.store.names("checkpoints")[-1]
    words = {
        "run": "hurt",
        "root": str(tmp_path),
        "newest": newest,
        "newest_path": hurt.store.path(f"checkpoints/{newest}"),
    }
    name = damaged.format(**words)
    file = Path(hurt.store.path(name))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    assert dojo([word.format(**words) for word in command]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dojo:")]
    assert len(lines) == 1
    assert f"{name} does not match its checksum" in lines[0]


@pytest.mark.exhaustive
def test_a_prepared_policy_is_scored_by_the_real_judge(finished, tmp_path):
    made = generate("held_out", 1, seed=1000)[0]
    kernel = made.kernels[0]
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([format_completion("a plan", kernel.source), "no kernel at all"]))
    config = EvaluateConfig(
        problems=ProblemsConfig(split="held_out", limit=1, seed=1000),
        policy=PolicyConfig(kind="scripted", model=str(script)),
        rollout={"turns": 1, "exemplars": 0},
        gym=finished.train.gym,
    )
    evaluate(config, run="scripted", root=finished.root)
    card = load_scorecard(Run(finished.root, "scripted").store.child("evaluate"))
    assert {verdict: n for verdict, n in card.last.verdicts.items() if n} == {"correct": 1, "malformed": 1}
