"""`dojo pipeline coder-quick` with a tiny model on two cores: every stage, as small as it gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.config import PolicyConfig
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.policy.tiny_model import new_policy
from kernel_core.runs.run_folder import Run

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
    *("policy.lora_rank=2", "ingest.modules_rows=6", "ingest.generator_rows=4"),
    *("train.cold_start.steps=2", "train.cold_start.conversations=12", "train.cold_start.batch_tokens=16384"),
    *("train.cold_start.minibatch_tokens=16384", "train.cold_start.warmup=1", "train.steps=2"),
    *("train.problems_per_step=1", "train.group_size=2", "train.curriculum.probe_problems=1"),
    *("train.minibatch_tokens=16384", "evaluate.samples_per_problem=1", "evaluate.problems.limit=2"),
    *("evaluate.groups.held-out.limit=1", "evaluate.groups.hand-written.limit=1"),
    *("best_of_n.problems.limit=1", "best_of_n.n=2"),
]
STAGES = [
    *("ingest", "index"),
    *(f"evaluate-untaught{group}" for group in ("", "-held-out", "-hand-written")),
    "cold-start",
    *(f"evaluate-before{group}" for group in ("", "-held-out", "-hand-written")),
    "train",
    *(f"evaluate-after{group}" for group in ("", "-held-out", "-hand-written")),
    "best-of-n",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder as transformers leaves it, with as large a vocabulary as only pretrained models have."""
    small = PolicyConfig(
        model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=400, max_context=16384
    )
    policy = new_policy(small, ["import triton\nclass ModelNew:\n    pass\n"] * 3, seed=0)
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


def dojo(prefect_api, kernelbench, root, *words):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *words, f"root={root}"],
        env=os.environ
        | {
            "PREFECT_API_URL": prefect_api,
            "PYTHONPATH": str(REPOSITORY),
            "KERNELBENCH_ROOT": kernelbench,
        },
        capture_output=True,
        text=True,
        timeout=3000,
    )


@pytest.mark.slow
def test_the_recipe_teaches_trains_and_measures_in_one_command(prefect_api, model, kernelbench, tmp_path):
    command = ["pipeline", "coder-quick", f"policy.model={model}", *ON_CPU, *SMALLEST]
    done = dojo(prefect_api, kernelbench, tmp_path, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run(str(tmp_path), "coder-quick")
    assert [record.stage for record in run.stages()] == STAGES
    assert all(record.status == "done" for record in run.stages())
    versions = [
        load_scorecard(run.store.child(f"evaluate-{which}")).conditions.policy_version
        for which in ("untaught", "before", "after")
    ]
    assert len(set(versions)) == 3 and versions[1].startswith("cold-start-")
    taught = run.stage("cold-start").config
    assert taught["policy"]["lora_rank"] is None  # all weights; RL trains adapters on them
    again = dojo(prefect_api, kernelbench, tmp_path, *command)
    assert again.returncode == 0, again.stderr[-3000:]
    assert [record.begun_at for record in run.stages()] == [
        record.begun_at for record in Run(str(tmp_path), "coder-quick").stages()
    ]
