"""Choice of the correct answers that a cold start learns from."""

import json

import pyarrow as pa
import pytest

from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers
from kernel_core.errors import ConfigError
from kernel_core.learn.cold_start.chat_files import read_transcripts
from kernel_core.learn.cold_start.verified_chats import CHATS, keep_verified
from kernel_core.parquet_rows import packed
from kernel_core.store import Store

ASK = ({"role": "user", "content": "a kernel?"},)
FAST, ALIKE, OTHER = "x = a + b + c + d\n", "x = a + b + c + e\n", "for i in range(7):\n    y[i] = f(i)\n"
COLUMNS = {
    **dict.fromkeys(("problem_id", "verdict", "code"), pa.string()),
    **dict.fromkeys(("sample", "turn"), pa.int64()),
    **dict.fromkeys(("speedup", "predicted_speedup"), pa.float64()),
}


def judged(folder, *rows):
    """A sealed evaluation of answers: code, speed-up, verdict, finish reason, messages, turn."""
    store, answers, verdicts = Store(folder), [], []
    for sample, (code, speedup, verdict, reason, messages, turn) in enumerate(rows):
        place = {"problem_id": "p", "sample": sample, "turn": turn}
        answers.append(
            KeptAnswer(
                **place,
                text=f"an answer: {code}",
                finish_reason=reason,
                policy_version="v",
                messages=messages,
            )
        )
        row = {"verdict": verdict, "speedup": None, "predicted_speedup": speedup, "code": code}
        verdicts.append(place | row)
    kept = KeptAnswers(store)
    kept.keep(answers)
    files = kept.seal(store)
    files["evaluations.parquet"] = store.write("evaluations.parquet", packed(verdicts, pa.schema(COLUMNS)))
    store.seal("scorecard", files, meta={})
    return store


def correct(code, speedup, reason="stop"):
    return code, speedup, "correct", reason, ASK, 0


def taught(store):
    """The code in each kept answer, in order."""
    lines = [json.loads(line) for line in store.read(CHATS).splitlines()]
    return [line["messages"][-1]["content"].removeprefix("an answer: ") for line in lines]


def test_the_fastest_kernel_is_kept_and_then_the_one_least_like_it(tmp_path):
    answered = judged(
        tmp_path / "answers",
        correct(OTHER, 1.0),
        correct(FAST, 2.0),
        correct(f"# the same\n{FAST}", 1.5),
        correct(ALIKE, 1.9),
        ("wrong = 1\n", 9.0, "wrong", "stop", ASK, 0),
        correct("cut = 1\n", 9.0, "length"),
    )
    assert keep_verified([answered], 2, store := Store(tmp_path / "two")) == 2
    assert taught(store) == [FAST, OTHER]
    assert keep_verified([answered], 9, store := Store(tmp_path / "all")) == 3
    assert taught(store) == [FAST, OTHER, ALIKE]
    assert store.open_sealed("verified-chats").meta == {"kernels": 3, "problems": 1}


def test_a_faster_kernel_of_a_later_round_takes_the_place_of_an_earlier_one(tmp_path):
    first = judged(tmp_path / "first", correct(FAST, 2.0))
    second = judged(tmp_path / "second", correct(OTHER, 3.0))
    keep_verified([first, second], 1, store := Store(tmp_path / "kept"))
    assert taught(store) == [OTHER]


def test_an_earlier_wrong_answer_in_the_prompt_of_a_second_turn_is_not_taught(tmp_path):
    asked = (*ASK, {"role": "assistant", "content": "wrong"}, {"role": "user", "content": "it is wrong"})
    answered = judged(tmp_path / "answers", (FAST, 1.0, "correct", "stop", asked, 1))
    keep_verified([answered], 1, store := Store(tmp_path / "kept"))
    (conversation,) = read_transcripts([store.path(CHATS)])
    assert conversation.messages == asked and conversation.answer == f"an answer: {FAST}"


def test_rounds_without_a_correct_answer_say_what_to_do(tmp_path):
    answered = judged(tmp_path / "answers", (FAST, 1.0, "wrong", "stop", ASK, 0))
    with pytest.raises(ConfigError, match=r"raise rounds\.limit"):
        keep_verified([answered], 1, Store(tmp_path / "kept"))
    assert not Store(tmp_path / "kept").sealed()
