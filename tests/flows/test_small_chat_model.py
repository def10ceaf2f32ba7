"""`dojo train` with a published chat model of 135 M parameters on two cores: chats, then one step of RL.

`DOJO_CHAT_MODEL` names its folder, as transformers saves it; SmolLM2-135M-Instruct was used. Answers of 48
tokens are cut off and earn nothing, so the step of RL has no gradient: the chats move the weights.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]
MODEL = os.environ.get("DOJO_CHAT_MODEL", "")
SETTINGS = (
    "steps=1", "problems_per_step=2", "group_size=2", "rollout.sampling.max_new_tokens=48", "rollout.turns=1",
    "rollout.exemplars=0", "curriculum.probe_problems=1", "problems.suite=modules", "policy.lora_rank=8",
    "cold_start.data=[chats.jsonl]", "cold_start.steps=2", "cold_start.batch_tokens=512",
    "cold_start.warmup=1",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not MODEL, reason="DOJO_CHAT_MODEL names no folder of a chat model")
def test_a_published_chat_model_takes_a_step_of_rl_on_two_cores(prefect_api: str, tmp_path: Path) -> None:
    chats = [
        {"messages": [{"role": "user", "content": f"add {n}"}, {"role": "assistant", "content": f"x + {n}"}]}
        for n in range(16)
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "train", f"policy.model={MODEL}", *SETTINGS, "run=chat"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PREFECT_API_URL": prefect_api},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = " ".join((done.stdout + done.stderr).split())
    assert "is pretrained: rollout.template=full" in said
    run = Run(str(tmp_path / "runs"), "chat")
    assert run.state().condition == "finished"
    rows = [json.loads(line) for line in (tmp_path / "runs/chat/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows][-1] == 1
    updates = [
        json.loads(line)
        for line in (tmp_path / "runs/chat/cold_start/metrics.jsonl").read_text().splitlines()
    ]
    assert updates[-1]["step"] == 2 and updates[-1]["grad_norm"] > 0
    newest = sorted((tmp_path / "runs/chat/checkpoints").glob("step-*"))[-1]
    assert newest.name == "step-000001"
