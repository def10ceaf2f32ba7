"""A GPU that the host lacks is missed before anything is fetched or started."""

import pytest

from flows.commands.local import pools
from kernel_core.config import GymConfig, PolicyConfig
from kernel_core.errors import ConfigError
from tasks.gpu import has_gpu, require_gpu


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
