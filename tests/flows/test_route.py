"""A stage runs here, or as a deployment whose children are adopted, tried again, and never done twice."""

import _thread
import contextlib
import contextvars
import json
import threading
import time
from functools import partial

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.states import Cancelled, Completed, Failed
from server_pages import all_pages
from waiting import eventually

import flows.route
from flows.route import ChildFailed, Stage, route, route_all, stage_digest
from flows.run_names import as_json
from flows.stage_flow import REFUSED
from kernel_core.config import IndexConfig
from kernel_core.errors import ConfigError
from kernel_core.store import Store


@flow(name="pretend")
def pretend(config: IndexConfig, run: str = "x", root: str = "runs") -> None:
    """A stage that refuses batches of one."""
    if config.batch_size == 1:
        raise ConfigError("one is too few")


def test_the_digest_covers_stage_settings_inputs_and_code():
    settings = {"config": {"levels": (1, 2)}}
    digest = stage_digest("train", settings, {"index": ""})
    assert digest == stage_digest("train", {"config": {"levels": [1, 2]}}, {"index": ""})
    others = [
        stage_digest("index", settings, {"index": ""}),
        stage_digest("train", {"config": {"levels": [1]}}, {"index": ""}),
        stage_digest("train", settings, {"index": "abd"}),
    ]
    assert len({digest, *others}) == 4


def test_an_inline_stage_is_called_and_raises_its_own_error(prefect_api):
    route(pretend, "inline", config=IndexConfig())
    with pytest.raises(ConfigError, match="too few"):
        route(pretend, "inline", config=IndexConfig(batch_size=1))


@pytest.fixture
def deployment(prefect_api, tmp_path, monkeypatch):
    """A deployment `pretend/small` without a worker: the tests play the worker."""
    entry = {"entrypoint": "flows/pretend.py:pretend", "name": "other", "tags": ["cpu"]}
    file = tmp_path / "prefect.yaml"
    file.write_text(json.dumps({"deployments": [entry, entry | {"name": "small", "tags": ["stage-cpu"]}]}))
    monkeypatch.setattr(flows.route, "PREFECT_YAML", file)
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(pretend)
        client.create_deployment(flow_id=flow_id, name="small")
        yield client


class Worker:
    """Ends the next children of `pretend/small` as it is told, in a thread."""

    def __init__(self, client, *endings):
        self.endings = list(endings)
        self.seen = []
        self._stopped = threading.Event()
        self._earlier = {run.id for run in all_pages(client.read_flow_runs)}
        # A thread begins with the settings of the process, not with those of this test.
        settings = contextvars.copy_context()
        self._thread = threading.Thread(target=settings.run, args=(self._work,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _work(self):
        with get_client(sync_client=True) as client:
            while self.endings and not self._stopped.is_set():
                with contextlib.suppress(httpx.TransportError):
                    self._end_children(client)
                time.sleep(0.05)

    def _end_children(self, client):
        for child in all_pages(client.read_flow_runs):
            is_next = child.deployment_id and child.id not in self._earlier and not self._stopped.is_set()
            if is_next and self.endings and child.state is not None and not child.state.is_final():
                client.set_flow_run_state(child.id, self.endings[0], force=True)
                self.endings.pop(0)
                self.seen.append(child)


def parent(batch_size, before=lambda: None):
    """A flow that routes `pretend` to its deployment."""

    @flow(name="parent")
    def parent() -> None:
        before()
        route(pretend, "deployed", {"index": Store("nowhere")}, config=IndexConfig(batch_size=batch_size))

    return parent


@pytest.fixture(autouse=True)
def poll_fast(monkeypatch):
    """Children are looked at more often than every five seconds."""
    import flows.route

    monkeypatch.setattr(flows.route, "POLL_S", 0.1)


def test_a_completed_child_is_not_run_again_by_a_restarted_parent(deployment):
    with Worker(deployment, Completed()) as worker:
        parent(11)()
    parent(11)()
    assert len(worker.seen) == 1
    assert worker.seen[0].parameters["config"]["batch_size"] == 11


def test_a_failed_child_is_followed_by_another_attempt(deployment):
    with Worker(deployment, Failed(), Completed()) as worker:
        parent(12)()
    keys = [child.idempotency_key for child in worker.seen]
    assert [key.rpartition(":")[2] for key in keys] == ["0", "1"]


@pytest.mark.exhaustive
def test_attempts_are_counted_and_a_restarted_parent_has_new_ones(deployment):
    with Worker(deployment, Failed(), Failed(), Failed()), pytest.raises(ChildFailed, match="failed 3 times"):
        parent(13)()
    with Worker(deployment, Completed()) as worker:
        parent(13)()
    assert worker.seen[0].idempotency_key.endswith(":3")


def test_a_mistake_of_the_callers_ends_the_parent_at_the_first_attempt(deployment):
    refused = Failed(name=REFUSED, message="no run 'x' under runs")
    with Worker(deployment, refused, Completed()) as worker, pytest.raises(ConfigError, match="no run 'x'"):
        parent(17)()
    assert len(worker.seen) == 1


def test_children_are_there_at_once_and_the_failure_of_one_waits_for_the_others(deployment):
    """All are started before any has ended, and the one that is cancelled ends the parent last."""
    sizes = (18, 19, 20)

    @flow(name="parent of three")
    def parent_of_three() -> None:
        stages = [Stage(pretend, {}, {"config": IndexConfig(batch_size=size)}) for size in sizes]
        route_all("deployed", stages)

    class WaitsForAll(Worker):
        def _end_children(self, client):
            if self.seen or all(child_of(size, client) for size in sizes):
                super()._end_children(client)

    worker = WaitsForAll(deployment, Cancelled(), Completed(), Completed())
    with worker, pytest.raises(ChildFailed, match="was cancelled"):
        parent_of_three()
    assert len(worker.seen) == 3


def child_of(batch_size, client):
    """The first child that was made for these settings, or None, also while the server is not reached."""
    sent, runs = as_json({"config": IndexConfig(batch_size=batch_size)}), []
    with contextlib.suppress(httpx.TransportError):
        runs = [run for run in all_pages(client.read_flow_runs) if run.parameters == sent]
    return min(runs, key=lambda run: run.created, default=None)


def test_a_parent_that_is_interrupted_cancels_its_child_and_a_new_one_makes_another(deployment):
    def interrupt():
        with get_client(sync_client=True) as client:
            eventually(partial(child_of, 15, client))
        _thread.interrupt_main()

    settings = contextvars.copy_context()
    threading.Thread(target=settings.run, args=(interrupt,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        parent(15)()
    assert child_of(15, deployment).state.is_cancelled()
    with Worker(deployment, Completed()) as worker:
        parent(15)()
    assert worker.seen[0].idempotency_key.endswith(":1")


def test_a_parent_interrupted_before_it_hears_of_its_child_cancels_it(deployment, monkeypatch):
    def run_and_be_interrupted(*arguments, **settings):
        made = run_deployment(*arguments, **settings)
        assert made.state.is_scheduled()
        raise KeyboardInterrupt

    monkeypatch.setattr("prefect.deployments.run_deployment", run_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        parent(16)()
    assert child_of(16, deployment).state.is_cancelled()


def test_a_cancelled_child_ends_the_parent(deployment):
    with Worker(deployment, Cancelled()), pytest.raises(ChildFailed, match="cancelled"):
        parent(14)()
