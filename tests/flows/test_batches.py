"""Batches of problems are task runs: a person sees each begin, end and say what came of it."""

import threading

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.events.worker import EventsWorker
from waiting import LIMIT_S, eventually

from flows.stage_flow import stage_flow
from kernel_core.batches import Batch
from kernel_core.errors import GymUnavailable
from tasks.batches import each_batch

BATCHES = [Batch(label="winners", start=number, end=number + 1, total=3) for number in range(3)]


def ends_of(flow_run):
    """The last state of each batch, by name; task runs reach the server as events, some time after."""
    inside = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    EventsWorker.drain_all(timeout=LIMIT_S)
    with get_client(sync_client=True) as client:
        return eventually(
            lambda: {run.name: run.state for run in client.read_task_runs(flow_run_filter=inside)},
            lambda states: (
                sum(state is not None and state.is_final() for state in states.values()) == len(BATCHES)
            ),
        )


def work_on_all(work, *, at_once):
    """Run a flow that works on three batches; gives its last state."""

    @stage_flow("batches", run_name="batches")
    def batches() -> None:
        each_batch(BATCHES, work, at_once=at_once)

    return batches(return_state=True)


@pytest.mark.parametrize("at_once", [False, True])
def test_each_batch_has_a_name_and_says_what_came_of_it(prefect_api, at_once):
    together, threads = threading.Barrier(3, timeout=LIMIT_S), set()

    def work(batch):
        threads.add(threading.current_thread())
        if at_once:
            together.wait()  # all of them are at work now
        return f"problem {batch.start} is solved."

    ended = work_on_all(work, at_once=at_once)
    told = {name: state.message for name, state in ends_of(ended.state_details.flow_run_id).items()}
    assert told == {f"winners {number + 1} of 3": f"problem {number} is solved." for number in range(3)}
    assert len(threads) == (3 if at_once else 1)
    assert at_once or threads == {threading.current_thread()}, "Ctrl-C reaches no other thread"


def test_a_batch_that_fails_is_red_and_its_error_reaches_the_task_around_it(prefect_api):
    done = []

    def work(batch):
        if batch.start == 1:
            raise GymUnavailable("no judge is left")
        done.append(batch.start)
        return ""

    ended = work_on_all(work, at_once=True)
    with pytest.raises(GymUnavailable, match="no judge is left"):
        ended.result()
    assert sorted(done) == [0, 2]
    states = ends_of(ended.state_details.flow_run_id)
    assert [states[one.name].is_failed() for one in BATCHES] == [False, True, False]
