"""A real Ray cluster of two nodes: work goes to both, and a node that dies or falls sick loses none of it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exploit_files import EXPLOITS, FILES

pytest.importorskip("ray", reason="needs the `cluster` extra")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.store import Store
from tests.fixtures.processes import children, command, descendants

from .conftest import PATIENCE_S

MakeRequest = Callable[..., JudgeRequest]
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The driver's node, which has no processor to give, and one worker node."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes
    nodes.shutdown()


@pytest.fixture
def cluster_gym(cluster: Cluster, tmp_path: Path) -> Iterator[PooledGym]:
    """One judge a node, with a store."""
    config = GymConfig(cluster="ray", ray_address=cluster.address, workers=1, deadline_s=PATIENCE_S)
    with open_gym(config, cache=Store(str(tmp_path))) as opened:
        yield opened


def _wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.1)


def _fork_roots() -> list[int]:
    """Process ids of the cluster's fork roots, oldest first."""
    named = {pid for pid in descendants(os.getpid()) if "kernel_core.gym.processes.fork_root" in command(pid)}
    forked = {child for pid in named for child in descendants(pid)}
    return sorted(named - forked)


def test_a_node_that_joins_gets_work_and_one_that_is_killed_loses_none(
    cluster: Cluster, cluster_gym: PooledGym, softmax_request: MakeRequest, tmp_path: Path
) -> None:
    second = cluster.add_node(num_cpus=1)
    _wait_until(lambda: len(cluster_gym.places) == 2)
    requests = [softmax_request(number) for number in range(24)]
    killed: list[str] = []

    def kill_when_half_is_done(_: str, done: int, total: int) -> None:
        if done >= total // 4 and not killed:
            killed.append("second")
            threading.Thread(target=cluster.remove_node, args=(second, False)).start()

    evaluations = cluster_gym.judge(requests, kill_when_half_is_done)
    assert [one.candidate_sha for one in evaluations] == [r.candidate.sha256 for r in requests]
    assert all(one.correct for one in evaluations)
    assert len(list(tmp_path.glob("evaluations/*/*.json"))) == len(requests)
    _wait_until(lambda: len(cluster_gym.places) == 1)
    assert [one.reason for one in cluster_gym.taken_out] == ["the node left the cluster"]


def test_a_node_that_falls_sick_is_taken_out_and_the_last_one_says_why(
    cluster: Cluster, cluster_gym: PooledGym, softmax_request: MakeRequest
) -> None:
    cluster.add_node(num_cpus=1)
    _wait_until(lambda: len(cluster_gym.places) == 2)
    cluster_gym.judge([softmax_request(number) for number in range(100, 104)])
    first, second = _fork_roots()
    _forbid_files(second)
    evaluations = cluster_gym.judge([softmax_request(number) for number in range(104, 112)])
    assert all(one.correct for one in evaluations)
    assert len(cluster_gym.places) == 1
    assert ["6 fresh judges" in one.reason for one in cluster_gym.taken_out] == [True]
    _forbid_files(first)
    with pytest.raises(GymUnavailable, match=r"no judge is left.*6 fresh judges.*6 fresh judges"):
        cluster_gym.judge([softmax_request(112)])


def _forbid_files(fork_root: int) -> None:
    """Its judges, present and future, can lay out no memory for candidates."""
    for pid in (fork_root, *children(fork_root)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def test_dojo_judge_uses_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    names = [("softmax_rows", "honest_softmax"), ("relu", "works_once")]
    rows.write_text(
        "\n".join(
            json.dumps({"problem": str(EXPLOITS / f"problems/{problem}.py"), "kernel": str(FILES[kernel])})
            for problem, kernel in names
        )
    )
    words = ("judge", "--batch", str(rows), "--out", str(tmp_path / "out.parquet"))
    result = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words, "--cluster", cluster.address],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert "2 judged: " in result.stdout
