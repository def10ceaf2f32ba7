"""`dojo pipeline coder-quick` with a tiny model on two cores: every stage, as small as it gets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_core.config import PolicyConfig
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.policy.tiny_model import new_policy
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import sealed_digest

REPOSITORY = Path(__file__).parents[2]
ON_CPU = [
    f"{stage}{key}"
    for stage in ("train.", "evaluate.", "best_of_n.")
    for key in (
        *("gym.device=cpu", "gym.workers=2", "gym.trials=1", "rollout.prompt_budget=9000"),
        *("rollout.sampling.max_new_tokens=16", "rollout.sampling.batch_size=8"),
    )
]
SMALLEST = [
    *("policy.device=cpu", "policy.dtype=float32", "policy.decoding=growing", "policy.max_context=16384"),
    *("policy.lora_rank=2", "ingest.modules_rows=6", "ingest.graphs_rows=4"),
    *("train.cold_start.steps=2", "train.cold_start.conversations=12", "train.cold_start.batch_tokens=16384"),
    *("train.cold_start.minibatch_tokens=16384", "train.cold_start.warmup=1", "train.steps=2"),
    *("train.problems_per_step=1", "train.group_size=2", "train.curriculum.probe_problems=1"),
    *("train.minibatch_tokens=16384", "evaluate.samples_per_problem=1", "evaluate.problems.limit=2"),
    *(f"evaluate.groups.{group}.limit=1" for group in ("held-out", "operators", "hand-written")),
    *("best_of_n.problems.limit=1", "best_of_n.n=2"),
]
GROUPS = ("", "-held-out", "-operators", "-hand-written")
STAGES = [
    *("ingest", "index"),
    # Learning has other settings of judges: answers are judged beside it, and the scorecards come after it.
    "cold-start",
    *(f"evaluate-untaught{group}" for group in GROUPS),
    "train",
    *(f"evaluate-before{group}" for group in GROUPS),
    *(f"evaluate-after{group}" for group in GROUPS),
    "best-of-n",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder as transformers leaves it, with as large a vocabulary as only pretrained models have."""
    small = PolicyConfig(
        model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=4096, max_context=16384
    )
    # Texts as in the prompts: with letters for tokens a pass over a conversation takes minutes.
    texts = [path.read_text() for path in sorted((REPOSITORY / "data").rglob("*.py"))]
    policy = new_policy(small, texts, seed=0)
    policy.model.resize_token_embeddings(20_000)
    folder = tmp_path_factory.mktemp("tiny-coder")
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def kernelbench(tmp_path_factory):
    """A folder laid out as a checkout of KernelBench, with our own problems."""
    folder = tmp_path_factory.mktemp("kernelbench")
    own = sorted((REPOSITORY / "data" / "problems").glob("*.py"))
    for level in (1, 2, 3, 4):
        (folder / f"level{level}").mkdir()
        for number in (1, 2):
            text = own[2 * level + number].read_text()
            (folder / f"level{level}" / f"{number}_own.py").write_text(text)
    return str(folder)


def call(prefect_api, kernelbench, root, *words):
    """Command and environment of a `dojo` process."""
    own = {"PREFECT_API_URL": prefect_api, "PYTHONPATH": str(REPOSITORY), "KERNELBENCH_ROOT": kernelbench}
    return [sys.executable, "-m", "flows.cli", *words, f"root={root}"], os.environ | own


def dojo(*arguments):
    command, environment = call(*arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000)


@pytest.mark.slow
def test_the_recipe_teaches_trains_and_measures_in_one_command(prefect_api, model, kernelbench, tmp_path):
    command = ["pipeline", "coder-quick", f"policy.model={model}", *ON_CPU, *SMALLEST]
    done = dojo(prefect_api, kernelbench, tmp_path, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run(str(tmp_path), "coder-quick")
    assert [record.stage for record in run.stages()] == STAGES
    assert all(record.status == "done" for record in run.stages())
    lines = (tmp_path / "coder-quick" / "logs.log").read_text()
    assert lines.count("judged 5 answers in the background") == 2
    untaught, before = (
        load_scorecard(run.store.child(f"evaluate-{which}")).conditions.policy_version
        for which in ("untaught", "before")
    )
    assert untaught != before and before.startswith("cold-start-")
    # No answer of random weights earns a reward, so RL updates nothing; its checkpoint is asked all the same.
    learned = sealed_digest(run.store.child("checkpoints/step-000002"))
    assert run.stage("evaluate-after").inputs["weights"] == learned
    taught = run.stage("cold-start").config
    assert taught["policy"]["lora_rank"] is None  # all weights; RL trains adapters on them
    again = dojo(prefect_api, kernelbench, tmp_path, *command)
    assert again.returncode == 0, again.stderr[-3000:]
    assert [record.begun_at for record in run.stages()] == [
        record.begun_at for record in Run(str(tmp_path), "coder-quick").stages()
    ]


def is_under_way(run, stage):
    """A stage has kept a part of its work, and has not ended."""
    if run.stage_at_work() != stage:
        return False
    if stage == "cold-start":
        return run.store.exists("cold_start/checkpoints/latest.json")
    if stage == "train":
        return run.store.exists("metrics.jsonl")
    return bool(run.store.names(f"{stage}/answers"))


def kill_in(stage, run, log, *arguments):
    """Start the command, and kill its process group once the stage is under way."""
    command, environment = call(*arguments)
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    while process.poll() is None and not is_under_way(run, stage):
        time.sleep(0.02)
    assert process.poll() is None, f"{stage} was never seen at work"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_killed_in_teaching_in_rl_and_in_judging_it_goes_on(prefect_api, model, kernelbench, tmp_path):
    often = [
        *("train.checkpoint_minutes=0.0001", "train.cold_start.checkpoint_minutes=0.0001"),
        *("train.cold_start.steps=6", "train.steps=4"),
    ]
    command = ["pipeline", "coder-quick", f"policy.model={model}", *ON_CPU, *SMALLEST, *often]
    run, ended = Run(str(tmp_path), "coder-quick"), {}
    with (tmp_path / "log").open("w") as log:
        for stage in ("cold-start", "train", "evaluate-after"):
            kill_in(stage, run, log, prefect_api, kernelbench, tmp_path, *command)
            assert run.state().condition == "dead"
            if stage == "train":
                assert run.store.names("evaluate-before/answers") and not run.stage("evaluate-before")
            ended |= {record.stage: record for record in run.stages() if record.status == "done"}
    done = dojo(prefect_api, kernelbench, tmp_path, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(record.status == "done" for record in run.stages())
    assert {stage: run.stage(stage) for stage in ended} == ended  # no finished stage was made again
    lines = (tmp_path / "coder-quick" / "logs.log").read_text()
    assert "cold start: going on after step" in lines
    steps = [line["step"] for line in run.store.lines("metrics.jsonl")]
    assert steps == [0, 1, 2, 3, 4]  # the probe before the first step, and each step once
