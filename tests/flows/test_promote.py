"""A checkpoint takes a name only if it is clearly better; a finished training has it tried."""

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter
from prefect.server.events.actions import RunDeployment
from server_pages import all_pages
from waiting import eventually
from watched_run import LITTLE, MUCH, SETTINGS, WATCHED, publish, run_with_index

from flows.deployments import load_deployments
from flows.presets import PREFECT_YAML
from flows.promote import promote
from kernel_core.config import EvaluateConfig, IngestConfig, PolicyConfig
from kernel_core.errors import ConfigError
from kernel_core.evaluation.promotion import promote_checkpoint
from kernel_core.runs.configure import build
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.resolve import locate_checkpoint, locate_index
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

FAMILIES = ("outer", "cumsum", "row_reduce", "log_softmax", "group_norm", "pool1d")
"""The shipped policy is mostly right in these: a few problems tell it from one that is wrong everywhere."""
EACH = 3
"""Problems of a family. With one, four right answers of six are within chance."""


def gates():
    """The last words of each gate, oldest first. The API learns of an end a moment later."""
    named = TaskRunFilter(name={"like_": "gate"})
    with get_client(sync_client=True) as client:
        runs = eventually(
            lambda: [
                run for run in client.read_task_runs(task_run_filter=named) if run.name.startswith("gate")
            ],
            lambda runs: len(runs) == 2 and all(run.state.is_final() for run in runs),
        )
    return [run.state.message for run in sorted(runs, key=lambda run: run.start_time)]


@pytest.mark.exhaustive
def test_a_better_checkpoint_takes_the_name_and_the_same_one_again_does_not(prefect_api, tmp_path):
    run_with_index(tmp_path, WATCHED, IngestConfig(generator_rows=60, decontaminate_against=()))
    publish(tmp_path, 1, MUCH)
    publish(tmp_path, 2, LITTLE)
    problems = {"split": "held_out", "families": FAMILIES, "limit": EACH * len(FAMILIES), "seed": 1000}
    root, config = str(tmp_path), build(EvaluateConfig, {**SETTINGS, "problems": problems})
    name = Run(root, "promoted")
    promote_checkpoint(name, locate_checkpoint(root, f"{WATCHED}@1"), PolicyConfig(), {})
    with judges_kept():
        promote(config, candidate=WATCHED, root=root)
        promote(config, candidate=WATCHED, root=root)
    first, second = gates()
    assert first.startswith("Promoted: clearly better: correct_rate 0.000 →")
    assert second.startswith("Not promoted: not clearly better: correct_rate")
    promoted = locate_checkpoint(root, "promoted")
    assert promoted.endswith("promoted/checkpoints/step-000002")
    weights = [
        Store(folder).read("model.safetensors") for folder in (promoted, locate_checkpoint(root, WATCHED))
    ]
    assert weights[0] == weights[1]
    assert locate_index(name, "promoted").sealed(), "it is asked with the exemplars of its training"
    with get_client(sync_client=True) as client:
        (page,) = (
            row
            for row in all_pages(client.read_artifacts)
            if row.key == "promoted-gate" and "**Promoted" in row.data
        )
    assert "The one to beat" in page.data and "95 % interval" in page.data


def test_a_candidate_that_was_replaced_since_its_event_is_refused(prefect_api, tmp_path):
    run_with_index(tmp_path, WATCHED, IngestConfig(generator_rows=1, decontaminate_against=()))
    publish(tmp_path, 1, LITTLE)
    with pytest.raises(ConfigError, match=r"has the digest .* replaced since"):
        promote(
            build(EvaluateConfig, SETTINGS), candidate=f"{WATCHED}@1", root=str(tmp_path), digest="0" * 64
        )
    with get_client(sync_client=True) as client:
        assert "promotion check: watched@1" in {run.name for run in all_pages(client.read_flow_runs)}


def test_a_finished_training_starts_the_gate_of_its_device():
    deployments = {one.name: one for one in load_deployments(PREFECT_YAML, {"PWD": "/"})}
    for device, name in (("cpu", "gate"), ("cuda", "gate-on-gpu")):
        (trigger,) = deployments[f"promote/{name}"].entry.triggers
        assert trigger["match"]["kernel-dojo.device"] == device
        assert trigger["expect"] == ["kernel-dojo.training.finished"]
        some = "3e19c039-fdd0-499a-8adc-a5f00a0f9328"
        assert RunDeployment(deployment_id=some, parameters=trigger["parameters"]).parameters == {
            "candidate": "{{ event.resource['kernel-dojo.checkpoint'] }}",
            "digest": "{{ event.resource['kernel-dojo.digest'] }}",
            "root": "{{ event.resource['kernel-dojo.root'] }}",
        }
