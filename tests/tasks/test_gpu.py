"""A GPU that the host lacks is missed before anything is fetched or started."""

import pytest
from prefect.client.orchestration import get_client

from flows.commands.local import pools
from kernel_core.config import GymConfig, PolicyConfig
from kernel_core.config.placement import PlacementConfig
from kernel_core.errors import ConfigError
from kernel_core.runs.host_gpus import has_gpu, require_gpu
from tasks.gpu import gpu_slot


@pytest.mark.skipif(has_gpu(), reason="this host has a GPU")
@pytest.mark.parametrize(
    ("policy", "gym", "words"),
    [
        (PolicyConfig(device="cuda"), GymConfig(), "policy.device = cuda.*set policy.device=cpu"),
        (PolicyConfig(), GymConfig(device="cuda"), "gym.device = cuda.*set gym.device=cpu"),
        (PolicyConfig(device="cuda"), GymConfig(device="cuda"), "policy.device=cpu gym.device=cpu"),
    ],
)
def test_settings_that_ask_for_it_are_refused(policy, gym, words):
    with pytest.raises(ConfigError, match=words):
        require_gpu(policy, gym)


@pytest.mark.parametrize(
    ("policy", "gym"),
    [
        (PolicyConfig(), GymConfig()),
        (PolicyConfig(kind="openai", endpoint="http://host/v1", device="cuda"), GymConfig()),
        (PolicyConfig(), GymConfig(device="cuda", cluster="ray")),
    ],
)
def test_what_runs_elsewhere_asks_for_none_here(policy, gym):
    require_gpu(policy, gym)


@pytest.mark.skipif(has_gpu(), reason="this host has a GPU")
def test_a_host_without_one_has_no_worker_for_the_cuda_pool(capsys):
    assert list(pools()) == ["cpu"]
    assert "no worker for the pool cuda" in capsys.readouterr().out


def test_a_stage_on_more_gpus_than_the_limit_has_slots_is_refused_and_waits_for_none(
    prefect_api, monkeypatch
):
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "1")
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name("cuda", 2)
    places = PlacementConfig(learn=(0, 1), judge=(2,))
    with pytest.raises(ConfigError, match=r"works on 3 GPUs, but the limit cuda has 2.*gcl update"):
        gpu_slot("cuda", places=places)
    gpu_slot("cuda", places=PlacementConfig(learn=(0, 1)))
