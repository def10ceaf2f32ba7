"""Learners and a sampler on two real nodes of a Ray cluster; each is killed, and so is a node."""

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import torch

pytest.importorskip("ray", reason="needs the `cluster` extra")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.cluster_utils import Cluster
from tiny_policy import CONFIG, PROMPTS, SETTINGS, TEXTS

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError, WorkersLost
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.learner import open_learner
from kernel_core.places.ray_places import reserved_on
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import open_sampler
from kernel_core.policy.tiny_model import new_policy
from kernel_core.progress import silent
from kernel_core.store import Store

LEARNER, SAMPLER = "learn.distributed.member", "policy.remote_sampler"


@pytest.fixture
def cluster():
    """The driver's node, which has no processor to give, and two others with two each."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes.add_node(num_cpus=2)
    nodes.add_node(num_cpus=2)
    yield nodes
    nodes.shutdown()


def config_for(cluster, **changes):
    return TrainConfig.model_validate(
        {
            "policy": CONFIG.model_dump(),
            "placement": {"cluster": "ray"},
            "gym": {"ray_address": cluster.address},
            "sampler": {"kind": "copy"},
            "learners": 3,
            "lr": 1e-3,
        }
        | changes
    )


def processes(words):
    """Those of this host with these words in their command, but for the ones that watch them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if words in line and "while_open" not in line:
                found.append(process)
    return found


def all_gone(words):
    give_up = time.monotonic() + 60
    while (found := processes(words)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return not found


def rows_of(samples):
    advantages = np.linspace(-1, 2, len(samples)).tolist()
    return [
        TokenRow(sample.prompt_ids, sample.token_ids, advantage, sample.logprobs)
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def node_of_sampler(cluster):
    """The node of the group with one bundle, on which a learner is too."""
    groups = ray.util.placement_group_table().values()
    [node] = [g["bundles_to_node_id"][0] for g in groups if len(g["bundles"]) == 1]
    return next(one for one in cluster.list_all_nodes() if one.node_id == node)


@pytest.mark.slow
def test_two_nodes_learn_and_sample_and_lose_a_learner_a_sampler_and_a_node(cluster, tmp_path):
    config, alone_policy = config_for(cluster), new_policy(CONFIG, TEXTS, seed=0)
    policy = new_policy(CONFIG, TEXTS, seed=0)
    alone = open_learner(TrainConfig(policy=CONFIG, lr=config.lr), alone_policy, Store(tmp_path / "alone"))
    with contextlib.ExitStack() as stack:
        learners = stack.enter_context(contextlib.closing(open_learner(config, policy, Store(tmp_path))))
        sampler = stack.enter_context(contextlib.closing(open_sampler(config, policy, Store(tmp_path))))
        publisher = Publisher(sampler, policy, 0.01)
        publisher.publish()
        before = sampler.sample(PROMPTS, **SETTINGS)
        assert [s.token_ids.tolist() for s in before] == [
            s.token_ids.tolist() for s in policy.sample(PROMPTS, **SETTINGS)
        ]
        assert sorted(reserved_on(node["NodeID"], "CPU") for node in ray.nodes()) == [0, 2, 2]

        processes(SAMPLER)[0].kill()
        again = sampler.sample(PROMPTS, **SETTINGS)
        assert [s.token_ids.tolist() for s in again] == [s.token_ids.tolist() for s in before]

        victim = processes(LEARNER)[0]
        victim.suspend()  # so that the other waits for it within the update
        threading.Timer(2.0, victim.kill).start()
        report = learners.update(rows_of(before), 1, silent)
        alone.update(rows_of(before), 1, silent)
        assert report.num_optimiser_steps == 1
        torch.testing.assert_close(weights_of(policy), weights_of(alone_policy), atol=5e-5, rtol=1e-3)
        policy.set_version("run@1")
        assert publisher.publish().moved > 0

        written = sampler.sample(PROMPTS, **SETTINGS)
        cluster.remove_node(node_of_sampler(cluster), allow_graceful=False)
        assert all_gone(SAMPLER)
        asked = ThreadPoolExecutor(1).submit(sampler.sample, PROMPTS, **SETTINGS)
        time.sleep(3.0)
        assert not asked.done(), "no node has room for it"
        cluster.add_node(num_cpus=2)
        after = asked.result()
        assert [s.token_ids.tolist() for s in after] == [s.token_ids.tolist() for s in written]
        assert {s.policy_version for s in after} == {"run@1"}
        with pytest.raises(WorkersLost, match="after 1 updates"):
            learners.update(rows_of(after), 2, silent)  # no checkpoint has the first update
    assert all_gone(LEARNER) and all_gone(SAMPLER), "nothing outlives the trainer"
    assert not list(tmp_path.glob("learners-*")) and not (tmp_path / "sampler").exists()


@pytest.mark.parametrize("root", ["memory://run", "runs/relative"])
def test_a_store_that_other_hosts_cannot_find_is_refused(root):
    config = TrainConfig.model_validate(
        {"policy": CONFIG.model_dump(), "placement": {"cluster": "ray"}, "sampler": {"kind": "copy"}}
    )
    with pytest.raises(ConfigError, match="set root to a folder that all hosts have"):
        open_sampler(config, new_policy(CONFIG, TEXTS, seed=0), Store(root))
