"""A pipeline says before it runs what it would do, where, for how long, and with how much memory."""

import json

import pytest

from kernel_core.config import PipelineConfig
from kernel_core.runs.forecast import MEASURED_WEIGHTS, forecast, weights_in

SMALL = {"policy": {"device": "cuda", "model": "FOLDER"}, "gym": {"device": "cuda"}}


@pytest.fixture
def model(tmp_path):
    """A folder with the size of Qwen2.5-Coder-0.5B; the file has a hole and takes no room."""
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "bfloat16", "vocab_size": 151936}))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2 * int(MEASURED_WEIGHTS))
    return str(tmp_path)


def planned(**train):
    return {one.stage: one for one in forecast(PipelineConfig(train=train))}


def test_every_stage_of_a_pretrained_model_is_named_with_its_time_and_memory(model):
    policy = {"model": model, "device": "cuda", "lora_rank": 32}
    assert weights_in(PipelineConfig(train={"policy": policy}).train.policy) == int(MEASURED_WEIGHTS)
    found = planned(
        policy=policy,
        gym={"device": "cuda"},
        cold_start={"all_weights": True, "steps": 880, "batch_tokens": 65536},
    )
    assert list(found) == [
        *("ingest", "index", "evaluate-untaught", "cold-start", "evaluate-before"),
        *("train", "evaluate-after", "best-of-n"),
    ]
    assert found["cold-start"].minutes == pytest.approx(654 / 60, rel=0.01)  # as measured
    assert found["cold-start"].gigabytes == pytest.approx(18 * 0.494)
    assert found["train"].gigabytes == pytest.approx(2 * 0.494)  # adapters alone are trained
    assert "880 updates of 65,536 tokens" in str(found["cold-start"])


def test_a_cold_start_that_is_left_out_says_so(model):
    policy = {"model": model, "device": "cuda"}
    assert "cold_start: none" in str(planned(policy=policy, cold_start="none")["cold-start"])
    assert "shipped is taught already" in str(planned()["cold-start"])
    assert planned()["train"].minutes is None  # no rate of a laptop was measured
