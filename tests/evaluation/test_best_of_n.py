"""Winners by the real judge: ranking, the second judgement, the files, and going on after a stop."""

import json

import pandas as pd
import pytest

from kernel_core.config import BestOfNConfig, GymConfig, ProblemsConfig, RolloutConfig
from kernel_core.dialogue.answers import KeptAnswers
from kernel_core.dialogue.prompt import format_completion
from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.errors import ConfigError
from kernel_core.evaluation.best_of_n import best_of_n, load_selection
from kernel_core.evaluation.winners import FRESH_DRAWS, rank, select
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import resize
from kernel_core.progress import silent
from kernel_core.records import Candidate, Evaluation, Timing, Verdict
from kernel_core.store import Store

MADE = generate("held_out", 2, 1000)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Three answers to each of two problems. Their own sizes are those of a CPU: the judge has no larger ones
    to run, which takes most of its time."""
    folder = tmp_path_factory.mktemp("problems")
    for number, made in enumerate(MADE):
        small = resize(made.problem, made.problem.cpu_constants)
        (folder / f"problem_{number}.py").write_text(small.source)
    return BestOfNConfig(
        problems=ProblemsConfig(suite=str(folder), audited=False),
        n=3,
        rollout=RolloutConfig(turns=1, exemplars=0),
        gym=GymConfig(workers=1, trials=1, compile_gate=False),
    )


@pytest.fixture(scope="module")
def problems(config):
    return load_problems(config.problems)


@pytest.fixture(scope="module")
def policy(problems):
    """For the first problem a fast kernel by the seed; for the second a mistake."""

    def answer(messages, seed):
        prompt = messages[0]["content"]
        number = next(n for n, problem in enumerate(problems) if problem.source.strip() in prompt)
        grades = ("mistake",) if number else ("fused", "tuned")
        wanted = [kernel for kernel in MADE[number].kernels if kernel.grade in grades]
        return format_completion("", wanted[seed % len(wanted)].source)

    return ScriptedPolicy(answer)


@pytest.fixture(scope="module")
def run(config, policy, gym):
    """Choose winners in a folder."""

    def choose(folder, progress=silent, **changes):
        chosen = config.model_copy(update=changes)
        return best_of_n(chosen, policy, gym, None, Store(folder), progress)

    return choose


@pytest.fixture(scope="module")
def gym(quick_gym):
    return quick_gym


@pytest.fixture(scope="module")
def finished(tmp_path_factory, run):
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder)


def turn_of(source, verdict=Verdict.CORRECT, speedup=None, trajectory=0):
    """A judged turn as if measured on a GPU."""
    candidate = Candidate.from_source(source)
    timing = Timing(median_ms=1, ci_low_ms=1, ci_high_ms=1, num_calls=1, clock="device_events")
    measured = {"timing": timing, "reference_timing": timing, "speedup": speedup} if speedup else {}
    return Turn(
        problem_id="p",
        trajectory=trajectory,
        index=0,
        messages=(),
        completion=Completion(text=source, finish_reason="stop", policy_version="v"),
        candidate=candidate,
        evaluation=Evaluation(
            problem_id="p",
            candidate_sha=candidate.sha256,
            verdict=verdict,
            trials_passed=1,
            trials=1,
            feedback="",
            gym_version="g",
            device="cuda",
            seconds=0,
            **measured,
        ),
    )


def test_faster_comes_first_then_shorter_and_only_correct_ones_are_ranked():
    turns = [
        turn_of("slow", speedup=1.1),
        turn_of("fast but long", speedup=2.0),
        turn_of("fast", speedup=2.0),
        turn_of("wrong", Verdict.WRONG),
        turn_of("hacked", Verdict.HACKED),
    ]
    assert [r.candidate.source for r in rank(turns, "measured")] == ["fast", "fast but long", "slow"]


def test_the_same_source_is_ranked_once():
    turns = [turn_of("same", speedup=1.5), turn_of("same", speedup=1.4, trajectory=1)]
    assert [(r.candidate.source, r.sample) for r in rank(turns, "measured")] == [("same", 0)]


def test_a_winner_stands_a_second_judgement_on_draws_of_its_own(finished, problems):
    _, selection = finished
    (selected,) = selection.winners
    winner = selected.winner
    assert selected.problem_id == problems[0].id
    assert len(winner.again) == FRESH_DRAWS
    assert all(evaluation.correct for evaluation in winner.again)
    assert winner.speedup == pytest.approx(winner.ranked.evaluation.predicted_speedup, rel=0.2)


def test_a_problem_without_a_winner_is_listed_with_what_became_of_it(finished, problems):
    folder, selection = finished
    (without,) = [selected for selected in selection.problems if selected not in selection.winners]
    assert without.problem_id == problems[1].id
    assert without.why_none.startswith("no correct candidate (")
    report = json.loads((folder / "winners" / "report.json").read_text())
    assert [p["problem_id"] for p in report["problems"]] == [problem.id for problem in problems]


def test_winners_holds_the_kernel_as_judged_and_its_evidence(finished):
    folder, selection = finished
    (selected,) = selection.winners
    home = folder / "winners" / selected.problem_id
    assert (home / "kernel.py").read_text() == selected.winner.ranked.candidate.source
    evidence = json.loads((home / "evidence.json").read_text())
    assert len(evidence["winner"]["again"]) == FRESH_DRAWS
    table = pd.read_parquet(folder / "winners" / "winners.parquet")
    assert table.problem_id.tolist() == [selected.problem_id]
    assert table.trials_passed.tolist() == [sum(e["trials"] for e in evidence["winner"]["again"])]
    assert (folder / table.kernel[0]).is_file()


def test_a_candidate_that_fails_the_second_judgement_is_rejected_and_the_next_one_wins(
    finished, config, problems, gym
):
    """The lucky one is a wrong kernel with the record of a right one."""
    (winner,) = finished[1].winners
    problem, first = problems[0], winner.winner.ranked.evaluation
    good = winner.winner.ranked.candidate.source
    lucky = next(kernel.source for kernel in MADE[0].kernels if kernel.fault == "wrong_order")
    record = first.model_copy(update={"predicted_speedup": 99.0})
    turns = [
        turn_of(source, trajectory=trajectory).model_copy(update={"evaluation": evaluation})
        for trajectory, (source, evaluation) in enumerate([(lucky, record), (good, first)])
    ]
    group = TrajectoryGroup(
        problem_id=problem.id,
        trajectories=tuple(Trajectory(problem_id=problem.id, turns=(turn,)) for turn in turns),
    )
    selected = select(problem, group, gym, "predicted", seed=config.seed)
    assert [rejudged.ranked.candidate.source for rejudged in selected.rejected] == [lucky]
    assert selected.winner.ranked.candidate.source == good
    assert selected.winner.rank == 1


def test_sequential_mode_is_one_conversation_of_n_turns(run, tmp_path):
    selection = run(tmp_path, mode="sequential", n=2)
    assert [selected.num_candidates for selected in selection.problems] == [2, 2]
    kept = [(answer.sample, answer.turn) for answer in KeptAnswers(Store(tmp_path)).in_order()]
    assert kept == [(0, 0), (0, 1)] * 2


@pytest.mark.exhaustive
def test_stopped_after_the_first_problem_it_goes_on_and_ends_with_the_same_winners(finished, run, tmp_path):
    def stop_after_the_first_winner(label, done, total):
        if label == "winners" and done == 1:
            raise KeyboardInterrupt

    undisturbed, selection = finished
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=stop_after_the_first_winner)
    (decided,) = (tmp_path / "selected").iterdir()
    before = decided.stat().st_mtime_ns
    assert not (tmp_path / "winners").exists()
    assert run(tmp_path).rows() == selection.rows()
    assert decided.stat().st_mtime_ns == before
    left, right = (pd.read_parquet(f / "winners" / "winners.parquet") for f in (tmp_path, undisturbed))
    pd.testing.assert_frame_equal(left, right)


def test_finished_winners_are_read_and_those_of_other_settings_refused(finished, run):
    folder, selection = finished
    assert run(folder) == selection == load_selection(Store(folder))
    with pytest.raises(ConfigError, match="holds winners of other settings"):
        run(folder, n=4)
