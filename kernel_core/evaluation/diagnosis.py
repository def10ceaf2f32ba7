"""Why a scorecard is as it is: verdicts, answers that were cut off, and what the judge said most often."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from kernel_core.evaluation.tables import Row
from kernel_core.records import Record, Verdict
from kernel_core.store import Store

MOST_LINES = 3
MUCH_CUT_OFF = 0.2
"""Share of answers at the token limit from which on raising it is the next step."""
MUCH_EMPTY = 0.2
"""Share of empty answers of an endpoint from which on its cause is the next step."""
_COLUMNS = [
    *("problem_id", "sample", "turn", "verdict", "finish_reason", "num_tokens", "feedback", "code"),
    *("answer", "speedup", "predicted_speedup", "predicted_gpu"),
]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


class Diagnosis(Record):
    """What became of all answers of an evaluation or a best-of-N."""

    answers: int
    verdicts: tuple[tuple[str, int], ...]
    """Most frequent first."""
    cut_off: float
    """Share that reached the token limit."""
    empty: int = 0
    """Answers without any text."""
    feedback: tuple[tuple[str, int], ...]
    """Commonest first lines of feedback to answers that are not correct. Lines that differ in numbers alone
    are counted together and shown as the first of them."""
    next_step: str
    """What to do about it; empty where most answers are judged on their merit."""

    def rows(self) -> list[dict[str, Any]]:
        """Rows of names and values, for a table."""
        rows: list[dict[str, Any]] = [
            {"what": f"answers {verdict}", "value": f"{count} of {self.answers}"}
            for verdict, count in self.verdicts
        ]
        if self.empty:
            rows.append({"what": "answers without any text", "value": f"{self.empty} of {self.answers}"})
        rows.append({"what": "cut off by the token limit", "value": f"{100 * self.cut_off:.0f} %"})
        rows += [{"what": f"said {count} times", "value": line} for line, count in self.feedback]
        return rows + ([{"what": "next step", "value": self.next_step}] if self.next_step else [])


def evaluations_of(run: Store) -> list[str]:
    """The folders of a run that have judged answers."""
    return [name for name in run.names() if run.exists(f"{name}/evaluations.parquet")]


def answers_of(run: Store, verdict: str | None, word: str) -> Iterator[str]:
    """Answers of all evaluations of a run as they were judged, with code; only those of a verdict and with a
    word in the problem's id."""
    for folder in evaluations_of(run):
        for row in answer_rows(run.child(folder)):
            if verdict not in (None, row["verdict"]) or word not in row["problem_id"]:
                continue
            cut = ", cut off by the token limit" if row["finish_reason"] == "length" else ""
            yield (
                f"=== {folder}: {row['problem_id']}, sample {row['sample']}, turn {row['turn']} ===\n"
                f"{row['verdict']}, {row['num_tokens'] or 'unknown'} tokens{cut}\n{row['feedback']}\n\n"
                f"{row['code'] or row.get('answer') or '(no kernel could be read)'}\n"
            )


def answer_rows(store: Store) -> list[Row]:
    """One row an answer, in order of problem, sample and turn."""
    table = pq.ParquetFile(io.BytesIO(store.read("evaluations.parquet"))).read(columns=_COLUMNS)
    rows: list[Row] = table.to_pylist()
    return rows


def diagnose(rows: Sequence[Row], max_new_tokens: int, kind: str = "torch") -> Diagnosis:
    """The diagnosis of answers that might take `max_new_tokens` each, of a policy of this kind."""
    verdicts = Counter(row["verdict"] for row in rows)
    failed = [row["feedback"] for row in rows if row["verdict"] != Verdict.CORRECT and row["feedback"]]
    cut_off = sum(row["finish_reason"] == "length" for row in rows) / max(1, len(rows))
    empty = sum(not (row["code"] or row.get("answer") or "").strip() for row in rows)
    return Diagnosis(
        answers=len(rows),
        verdicts=tuple(verdicts.most_common()),
        cut_off=cut_off,
        empty=empty,
        feedback=tuple(_commonest(map(_first_line, failed))),
        next_step=_next_step(verdicts, cut_off, empty, max_new_tokens, kind),
    )


def _commonest(lines: Iterable[str]) -> list[tuple[str, int]]:
    """The commonest lines, each as it came first, counted without regard to numbers."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        without = _NUMBER.sub("…", line)
        counts[without] += 1
        first.setdefault(without, line)
    return [(first[without], count) for without, count in counts.most_common(MOST_LINES)]


def _next_step(verdicts: Counter[str], cut_off: float, empty: int, max_new_tokens: int, kind: str) -> str:
    total = max(1, verdicts.total())
    if empty / total >= MUCH_EMPTY and kind == "openai":
        return (
            f"{empty} of {total} answers are empty: ask the endpoint for one by hand. A reasoning model may "
            "put its text elsewhere, and a server may refuse the prompt's length or the model's name"
        )
    if cut_off >= MUCH_CUT_OFF:
        return (
            f"{100 * cut_off:.0f} % cut off at {max_new_tokens} tokens: raise "
            "rollout.sampling.max_new_tokens, or turn reasoning off by policy.enable_thinking=false"
        )
    if verdicts[Verdict.MALFORMED] / total > 0.5:
        return (
            "most answers hold no kernel in the asked form: read the prompt with `dojo prompt` and an answer "
            "with `dojo runs answers NAME`; "
            + ("rollout.turns=3 lets it try again" if kind == "openai" else "a cold start teaches the form")
        )
    if verdicts[Verdict.TIMED_OUT] / total > 0.5:
        return "most candidates ran out of time: raise gym.deadline_s, or judge on a GPU (gym.device=cuda)"
    return ""


def _first_line(feedback: str) -> str:
    lines = [line.strip() for line in feedback.splitlines() if line.strip()]
    return lines[0][:160] if lines else ""
