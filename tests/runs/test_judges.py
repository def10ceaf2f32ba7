"""Judges that work in the background of a run: the next stage that opens them finds the verdicts."""

import pytest
from exploit_files import SMALL_SOFTMAX, text_of

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.verdict_cache import Cache, request_key
from kernel_core.records import Candidate
from kernel_core.runs.judges import JUDGED, judge_in_background, judges_kept, judging
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

ONE_TRIAL = GymConfig(workers=1, trials=1, compile_gate=False)
HONEST = JudgeRequest(
    problem=SMALL_SOFTMAX, candidate=Candidate.from_source(text_of("honest_softmax")), seed=11
)


@pytest.fixture
def run(tmp_path):
    return Run(str(tmp_path), "judged")


def verdict(run):
    """The verdict that the root keeps, if there is one."""
    return Cache(Store(run.root).child(JUDGED)).get(request_key(HONEST, ONE_TRIAL))


def test_the_next_stage_with_the_same_judges_waits_and_finds_the_verdict(run):
    with judges_kept():
        with judging(ONE_TRIAL, run) as gym:
            judge_in_background(gym, [HONEST])
        with judging(ONE_TRIAL, run) as again:
            assert again is gym
            assert verdict(run).verdict == "correct"


def test_judges_without_a_keeper_are_closed_and_judge_nothing_in_the_background(run):
    with judging(ONE_TRIAL, run) as gym:
        judge_in_background(gym, [HONEST])
    assert verdict(run) is None


def test_the_end_of_the_run_ends_the_background_and_a_fault_there_is_met_by_the_next_stage(run, caplog):
    with judges_kept():
        with judging(ONE_TRIAL, run) as gym:
            gym.close()
            judge_in_background(gym, [HONEST])
        with pytest.raises(Exception, match="this gym was closed"), judging(ONE_TRIAL, run) as closed:
            assert "judging in the background ended early: this gym was closed" in caplog.text
            closed.judge([HONEST])
        with judging(ONE_TRIAL, run) as new:
            [evaluation] = new.judge([HONEST])
    assert evaluation.verdict == "correct"
