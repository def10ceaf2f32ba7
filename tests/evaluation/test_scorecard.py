"""A whole evaluation by the real judge, its files, and going on after `kill -9`.

Run as a script with a folder, this file evaluates into it and kills itself after the first part.
"""

import gzip
import json
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest

from kernel_core.config import EvaluateConfig, GymConfig, ProblemsConfig, RolloutConfig, SamplingConfig
from kernel_core.dialogue.answers import FILE, KeptAnswers, stored_answers
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.evaluation.scorecard import (
    answer_groups,
    compare,
    evaluate,
    evaluate_answers,
    headline_rows,
    load_scorecard,
)
from kernel_core.evaluation.tables import work_rows
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.problems.generate import generate
from kernel_core.progress import silent
from kernel_core.records import NotJudged, Verdict
from kernel_core.store import Store

NUM_PROBLEMS, NUM_SAMPLES, NUM_TURNS = 2, 2, 2
PROBLEMS = ProblemsConfig(split="held_out", limit=NUM_PROBLEMS, seed=1000)
CONFIG = EvaluateConfig(
    problems=PROBLEMS,
    samples_per_problem=NUM_SAMPLES,
    # A batch of two conversations makes every problem a part of its own.
    rollout=RolloutConfig(turns=NUM_TURNS, exemplars=0, sampling=SamplingConfig(batch_size=NUM_SAMPLES)),
    # As the judge that all tests share.
    gym=GymConfig(workers=1, trials=1, compile_gate=False),
)


def policy_that_knows_some(version="some"):
    """Answers each prompt with one of its problem's graded kernels, mistakes among them, by the seed."""
    made = generate(PROBLEMS.split, NUM_PROBLEMS, PROBLEMS.seed)

    def answer(messages, seed):
        kernels = next(m.kernels for m in made if m.problem.source.strip() in messages[0]["content"])
        kernel = kernels[seed % len(kernels)]
        return format_completion(kernel.thinking, kernel.source)

    return ScriptedPolicy(answer, version=version)


def run(folder, gym, config=CONFIG, policy=None, progress=silent):
    return evaluate(config, policy or policy_that_knows_some(), gym, None, Store(folder), progress)


def assert_equal_but_for_the_wall_clock(folder, other):
    for name in ("evaluations", "problems", "families"):
        tables = [pd.read_parquet(f / f"{name}.parquet") for f in (folder, other)]
        pd.testing.assert_frame_equal(*(table.drop(columns="seconds", errors="ignore") for table in tables))


@pytest.fixture(scope="module")
def gym(quick_gym):
    return quick_gym


@pytest.fixture(scope="module")
def finished(tmp_path_factory, gym):
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder, gym)


def test_every_problem_sample_and_turn_is_scored(finished):
    folder, card = finished
    assert card.last.num_problems == NUM_PROBLEMS
    assert card.last.num_samples == NUM_PROBLEMS * NUM_SAMPLES
    assert [score.num_samples for score in card.by_turn] == [NUM_PROBLEMS * NUM_SAMPLES] * NUM_TURNS
    turns = pd.read_parquet(folder / "evaluations.parquet")
    assert len(turns) == NUM_PROBLEMS * NUM_SAMPLES * NUM_TURNS
    assert turns.is_last.sum() == turns.is_best.sum() == NUM_PROBLEMS * NUM_SAMPLES


class CountingPolicy(ScriptedPolicy):
    """The size of each batch that it wrote."""

    def __init__(self):
        super().__init__(["no kernel"])
        self.batches = []

    def sample(self, prompts, **settings):
        self.batches.append(len(prompts))
        return super().sample(prompts, **settings)


def test_groups_of_problems_are_written_in_one_batch_and_scored_each_by_itself(gym, tmp_path):
    rollout = CONFIG.rollout.model_copy(update={"turns": 1, "sampling": SamplingConfig(batch_size=16)})
    first = CONFIG.model_copy(update={"rollout": rollout})
    second = first.model_copy(update={"problems": PROBLEMS.model_copy(update={"seed": 2000})})
    groups = [(first, Store(tmp_path / "first")), (second, Store(tmp_path / "second"))]
    policy = CountingPolicy()
    answer_groups(groups, policy, gym, None)
    cards = [run(store.root, gym, config, policy) for config, store in groups]
    assert policy.batches == [2 * NUM_PROBLEMS * NUM_SAMPLES]
    assert cards[1] == run(tmp_path / "alone", gym, second, CountingPolicy())
    assert {problem.problem_id for problem in cards[0].problems}.isdisjoint(
        problem.problem_id for problem in cards[1].problems
    )


def test_graded_kernels_are_correct_and_mistakes_are_not(finished):
    folder, card = finished
    grades = {
        kernel.source.strip(): kernel.grade
        for made in generate(PROBLEMS.split, NUM_PROBLEMS, PROBLEMS.seed)
        for kernel in made.kernels
    }
    turns = pd.read_parquet(folder / "evaluations.parquet")
    for turn in turns.itertuples():
        # What is no Python has no code.
        grade = "mistake" if pd.isna(turn.code) else grades[turn.code.strip()]
        assert (turn.verdict == Verdict.CORRECT) == (grade != "mistake"), turn.feedback
    assert 0 < card.last.correct_rate.value < 1


def test_predictions_are_named_so_and_nothing_is_measured_on_a_cpu(finished):
    folder, card = finished
    assert card.headline == "predicted"
    assert [speed.kind for speed in card.last.speeds] == ["predicted"]
    turns = pd.read_parquet(folder / "evaluations.parquet")
    assert turns.speedup.isna().all() and turns.runtime_ms.isna().all()
    assert turns[turns.verdict == "correct"].predicted_speedup.notna().all()
    assert all("measured" not in row["metric"] for row in headline_rows(card))


def test_eval_results_have_kernelbench_keys_of_each_samples_last_turn(finished):
    folder, card = finished
    results = json.loads((folder / "eval_results.json").read_text())
    assert list(results) == [problem.problem_id for problem in card.problems]
    for samples in results.values():
        assert [sample["sample_id"] for sample in samples] == list(range(NUM_SAMPLES))
        for sample in samples:
            assert {"compiled", "correctness", "metadata", "runtime", "runtime_stats"} <= sample.keys()
            assert (sample["runtime"], sample["runtime_stats"]) == (-1.0, {})
            assert sample["turn"] == NUM_TURNS - 1
    correct = sum(sample["correctness"] for samples in results.values() for sample in samples)
    assert correct == card.last.verdicts[Verdict.CORRECT]


def test_a_finished_folder_is_read_and_not_made_again(finished, gym):
    folder, card = finished
    answers = []
    silent_policy = ScriptedPolicy(lambda messages, seed: answers.append(1) or "", version="some")
    assert run(folder, gym, policy=silent_policy) == card == load_scorecard(Store(folder))
    assert answers == []


def test_a_folder_of_another_policy_is_refused(finished, gym):
    folder, _ = finished
    with pytest.raises(ConfigError, match="other settings, problems or another policy"):
        run(folder, gym, policy=policy_that_knows_some(version="another"))


@pytest.mark.exhaustive
def test_killed_after_the_first_part_it_goes_on_and_ends_with_the_same_tables(finished, gym, tmp_path):
    undisturbed, card = finished
    killed = subprocess.run([sys.executable, __file__, str(tmp_path)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(list((tmp_path / "judged").iterdir())) == 1
    assert len(KeptAnswers(Store(tmp_path)).in_order()) == NUM_SAMPLES * NUM_TURNS
    assert not (tmp_path / "manifest.json").exists()
    assert run(tmp_path, gym) == card
    assert_equal_but_for_the_wall_clock(tmp_path, undisturbed)
    for name in ("scorecard.json", "eval_results.json", "fast_p.png"):
        assert (tmp_path / name).read_bytes() == (undisturbed / name).read_bytes()


def test_every_answer_is_kept_with_what_decided_it(finished):
    folder, card = finished
    kept = KeptAnswers(Store(folder)).in_order()
    assert len(kept) == NUM_PROBLEMS * NUM_SAMPLES * NUM_TURNS
    assert not (folder / "answers").exists(), "pieces go when all answers are in one file"
    assert {answer.policy_version for answer in kept} == {card.conditions.policy_version}
    assert len({answer.seed for answer in kept}) == len(kept)
    first, second = kept[:2]
    assert (first.sample, first.turn, second.turn) == (0, 0, 1)
    kernel = parse_completion(first.text, first.finish_reason).source
    assert any(kernel.strip() in message["content"] for message in second.messages)
    turns = pd.read_parquet(folder / "evaluations.parquet").set_index(["problem_id", "sample", "turn"])
    assert sorted(turns.index) == [answer.key for answer in kept]


class CutOff:
    """The gym until a number of requests, and then a fault that ends the stage."""

    def __init__(self, gym, after):
        self._gym, self._left = gym, after

    def __getattr__(self, name):
        return getattr(self._gym, name)

    def judge(self, requests, progress=silent):
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._gym.judge(requests, progress)


def test_answers_are_kept_before_they_are_judged_and_not_sampled_again(finished, gym, tmp_path):
    _, card = finished
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CutOff(gym, after=0))
    written = KeptAnswers(Store(tmp_path)).in_order()
    assert {answer.turn for answer in written} == {0} and not (tmp_path / "judged").exists()
    policy, asked = policy_that_knows_some(), []

    def answer(messages, seed):
        asked.append(seed)
        return policy.sample([messages], temperature=1.0, max_new_tokens=1, seed=[seed])[0].text

    assert run(tmp_path, gym, policy=ScriptedPolicy(answer, version="some")) == card
    assert not {one.seed for one in written} & set(asked)
    assert len(asked) == NUM_PROBLEMS * NUM_SAMPLES * NUM_TURNS - len(written)


def test_kept_answers_are_judged_again_without_a_policy_beside_the_first_card(finished, gym, tmp_path):
    folder, card = finished
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    config = CONFIG.model_copy(update={"answers": str(folder)})
    with pytest.raises(KeyboardInterrupt):
        evaluate_answers(config, CutOff(gym, after=0), Store(tmp_path))
    again = evaluate_answers(config, gym, Store(tmp_path))
    assert again.conditions.answers == str(folder)
    assert (again.last, again.best, again.problems) == (card.last, card.best, card.problems)
    assert again == evaluate_answers(config, CutOff(gym, after=0), Store(tmp_path)), "a finished one is read"
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert (tmp_path / FILE).exists(), "a second card is whole without the first"


@pytest.mark.parametrize("name", ["answers.jsonl.gz", "answers.parquet"])
def test_a_file_of_answers_is_judged_as_the_folder_that_they_came_from(finished, gym, tmp_path, name):
    folder, card = finished
    rows = [row for row in pd.read_parquet(folder / FILE).to_dict("records") if row["turn"] == 0]
    columns = {"problem_id": "problem", "sample": "sample", "text": "text", "finish_reason": "end"}
    rows = [{new: row[old] for old, new in columns.items()} for row in rows]
    if name.endswith(".parquet"):
        pd.DataFrame(rows).to_parquet(tmp_path / name)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_bytes(gzip.compress(lines.encode()))
    config = CONFIG.model_copy(update={"answers": str(tmp_path / name)})
    again = evaluate_answers(config, gym, Store(tmp_path / "judged"))
    assert again.by_turn == card.by_turn[:1]
    assert again.conditions.policy_version == name


def test_only_the_asked_number_of_answers_is_judged(finished, gym, tmp_path):
    folder, _ = finished
    config = CONFIG.model_copy(update={"answers": str(folder), "samples_per_problem": 1, "k": (1,)})
    assert evaluate_answers(config, gym, Store(tmp_path)).last.num_samples == NUM_PROBLEMS


def test_a_row_of_answers_without_its_text_is_named(tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text('{"problem": "a", "sample": 0, "text": "x"}\n{"problem": "a", "sample": 1}\n')
    with pytest.raises(ConfigError, match="row 2: text: field required"):
        stored_answers(str(file))
    file.write_text('{"problem": "a", "sample": 0, "text": "x"}\n' * 2)
    with pytest.raises(ConfigError, match="row 2 is a second answer"):
        stored_answers(str(file))


def test_first_turns_are_judged_apart(finished, gym, tmp_path):
    folder, card = finished
    rollout = CONFIG.rollout.model_copy(update={"turns": 1})
    config = CONFIG.model_copy(update={"answers": str(folder), "rollout": rollout})
    assert evaluate_answers(config, gym, Store(tmp_path)).by_turn == card.by_turn[:1]


def test_answers_to_another_problem_of_the_same_name_are_refused(finished, gym, tmp_path):
    folder, _ = finished
    table = pd.read_parquet(folder / FILE)
    table["problem_sha256"] = "another"
    table.to_parquet(tmp_path / FILE)
    config = CONFIG.model_copy(update={"answers": str(tmp_path)})
    with pytest.raises(ConfigError, match="is another one now than when it was answered"):
        evaluate_answers(config, gym, Store(tmp_path / "again"))


class FailsOn:
    """The gym, on which the reference of one problem fails."""

    def __init__(self, gym, problem_id):
        self._gym, self._problem_id = gym, problem_id

    def __getattr__(self, name):
        return getattr(self._gym, name)

    def judge(self, requests, progress=silent):
        good = iter(self._gym.judge([r for r in requests if r.problem.id != self._problem_id], progress))
        failed = NotJudged(problem_id=self._problem_id, reason="HalfTensor is not supported")
        return [failed if r.problem.id == self._problem_id else next(good) for r in requests]


def test_a_problem_that_is_none_here_is_named_and_is_in_no_figure(finished, gym, tmp_path):
    folder, card = finished
    bad, good = card.problems
    here = run(tmp_path / "asked", FailsOn(gym, bad.problem_id))
    again = evaluate_answers(
        CONFIG.model_copy(update={"answers": str(folder)}),
        FailsOn(gym, bad.problem_id),
        Store(tmp_path / "a"),
    )
    for one in (here, again):
        assert one.problems == (good,) and one.last.num_samples == NUM_SAMPLES
        (named,) = one.not_judged
        assert (named.problem_id, named.reason) == (bad.problem_id, "HalfTensor is not supported")
        assert {
            "what": f"not a problem here: {bad.problem_id}", "value": "HalfTensor is not supported"
        } in work_rows(one)  # fmt: skip


def test_a_policy_that_answers_nothing_scores_zero_and_loses_every_problem(finished, gym, tmp_path):
    _, card = finished
    silent_card = run(tmp_path, gym, policy=ScriptedPolicy(["I cannot."], version="mute"))
    assert silent_card.last.verdicts[Verdict.MALFORMED] == NUM_PROBLEMS * NUM_SAMPLES
    change = compare(card, silent_card)
    assert not change.gained
    rates = {c.metric: c for c in change.changes if c.view == "last"}
    assert rates["correct_rate"].after == 0


def test_a_damaged_scorecard_is_reported_and_not_read(finished, tmp_path):
    folder, _ = finished
    store = Store(tmp_path)
    for path in (p for p in folder.rglob("*") if p.is_file()):
        store.write(str(path.relative_to(folder)), path.read_bytes())
    store.write("problems.parquet", b"something else")
    with pytest.raises(Corrupt, match=r"problems.parquet does not match its checksum"):
        load_scorecard(store)


def test_no_scorecard_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="no complete scorecard"):
        load_scorecard(Store(tmp_path))


def _kill_after_the_first_part(label, done, total):
    if label == "problems" and done == 1:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with open_gym(CONFIG.gym) as its_own_gym:
        run(sys.argv[1], its_own_gym, progress=_kill_after_the_first_part)
