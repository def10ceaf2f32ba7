"""Why a scorecard is as it is: verdicts, answers that were cut off, and what the judge said most often."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kernel_core.dialogue.answers import FILE, PIECES, KeptAnswers
from kernel_core.errors import NotFound
from kernel_core.evaluation.tables import TURN_SCHEMA, Row
from kernel_core.parquet_rows import packed, unpacked
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
    """Summary of the verdicts on all answers of an evaluation or a best-of-N."""

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
    """Advice to the user; empty where most answers are judged on their merit."""

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


def answers_of(run: Store, folder: str, verdict: str | None, word: str, most: int, out: Path | None) -> str:
    """Return at most so many answers of a run as text; with `out` write all chosen ones to a Parquet file."""
    rows = _chosen(run, folder, verdict, word)
    if out is None:
        return "\n".join(map(_shown, islice(rows, most)))
    chosen = list(rows)
    out.write_bytes(packed(chosen))
    return f"{len(chosen)} answers are in {out}"


def _shown(row: Row) -> str:
    cut = ", cut off by the token limit" if row["finish_reason"] == "length" else ""
    return (
        f"=== {row['folder']}: {row['problem_id']}, sample {row['sample']}, turn {row['turn']} ===\n"
        f"{row['verdict']}, {row['num_tokens'] or 'unknown'} tokens{cut}\n{row['feedback'] or ''}\n\n"
        f"{row['code'] or row['text'] or '(empty)'}\n"
    )


def _chosen(run: Store, folder: str, verdict: str | None, word: str) -> Iterator[Row]:
    """One row an answer of a run, with its evaluation where it has one.

    Answers of an evaluation that was cut before its end have the verdict `not judged`. Raises `NotFound`
    where none is chosen.
    """
    folders = [name for name in run.names() if name == folder or not folder]
    kept = {name: _with_evaluations(run.child(name)) for name in folders if _has_answers(run.child(name))}
    none = True
    for name, rows in kept.items():
        for row in rows:
            if verdict in (None, row["verdict"]) and word in row["problem_id"]:
                none = False
                yield {"folder": name, **row}
    if none:
        names = ", ".join(kept) or "none"
        raise NotFound(f"no such answers in {run.root}; its folders with answers: {names}")


def _has_answers(store: Store) -> bool:
    return any(store.exists(name) for name in (FILE, PIECES, "evaluations.parquet"))


def _with_evaluations(store: Store) -> list[Row]:
    judged = {}
    if store.exists("evaluations.parquet"):
        rows = unpacked(store.read("evaluations.parquet"))
        judged = {(row["problem_id"], row["sample"], row["turn"]): row for row in rows}
    if not (store.exists(FILE) or store.exists(PIECES)):
        return [{"text": row["answer"], **row} for row in judged.values()]
    unknown = dict.fromkeys(TURN_SCHEMA.names)
    return [
        unknown
        | {"verdict": "not judged"}
        | judged.get(answer.key, {})
        | answer.model_dump(exclude={"messages"})
        | {"prompt": json.dumps(answer.messages, ensure_ascii=False)}
        for answer in KeptAnswers(store).in_order()
    ]


def answer_rows(store: Store) -> list[Row]:
    """One row an answer, in order of problem, sample and turn."""
    return unpacked(store.read("evaluations.parquet"), _COLUMNS)


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
            "rollout.sampling.max_new_tokens, or turn reasoning off by "
            + ("policy.extra_body" if kind == "openai" else "policy.enable_thinking=false")
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
