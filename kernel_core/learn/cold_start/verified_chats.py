"""Correct answers of judged evaluations as a file of chats, which a cold start learns from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernel_core.corpus.normalise import kernel_hash
from kernel_core.corpus.shingles import Shingles, code_tokens, jaccard, shingles_of
from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers
from kernel_core.errors import ConfigError
from kernel_core.parquet_rows import unpacked
from kernel_core.records import Verdict
from kernel_core.store import Store

CHATS = "chats.jsonl"
KIND = "verified-chats"
_COLUMNS = ["problem_id", "sample", "turn", "verdict", "speedup", "predicted_speedup", "code"]


class _Verified(NamedTuple):
    """An answer with a correct kernel."""

    answer: KeptAnswer
    speedup: float
    kernel_hash: str
    shingles: Shingles


def keep_verified(evaluations: Sequence[Store], most: int, store: Store) -> int:
    """Write the chosen answers of sealed evaluations as chats, seal the folder, and return their number.

    Of each problem at most `most` distinct kernels are chosen: the fastest, then always the one least like
    those chosen. Truncated answers are left out: they have no end to learn. Raises `ConfigError` where no
    answer is correct.
    """
    by_problem: dict[str, list[_Verified]] = defaultdict(list)
    for evaluation in evaluations:
        for verified in _verified(evaluation):
            by_problem[verified.answer.problem_id].append(verified)
    chosen = [answer for candidates in by_problem.values() for answer in _chosen(candidates, most)]
    if not chosen:
        raise ConfigError(
            "no answer of the rounds so far is correct, so there is nothing to teach: raise rounds.limit or "
            "rounds.samples, or teach a cold start first"
        )
    files = {CHATS: store.write(CHATS, "".join(map(_chat, chosen)).encode())}
    store.seal(KIND, files, meta={"kernels": len(chosen), "problems": len(by_problem)})
    return len(chosen)


def _verified(evaluation: Store) -> Iterator[_Verified]:
    answers = {answer.key: answer for answer in KeptAnswers(evaluation).in_order()}
    for row in unpacked(evaluation.read("evaluations.parquet"), _COLUMNS):
        answer = answers[row["problem_id"], row["sample"], row["turn"]]
        if row["verdict"] != Verdict.CORRECT.value or answer.finish_reason != "stop":
            continue
        speedup = row["speedup"] or row["predicted_speedup"] or 0.0
        shingles = shingles_of(code_tokens(row["code"], "triton"))
        yield _Verified(answer, speedup, kernel_hash(row["code"], "triton"), shingles)


def _chosen(candidates: Sequence[_Verified], most: int) -> list[KeptAnswer]:
    """Return the answers chosen for one problem; of equals the earliest."""
    distinct: dict[str, _Verified] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.speedup):
        distinct.setdefault(candidate.kernel_hash, candidate)
    left, chosen = list(distinct.values()), list[_Verified]()
    while left and len(chosen) < most:
        likeness = [_likeness(candidate, chosen) for candidate in left]
        chosen.append(left.pop(likeness.index(min(likeness))))
    return [candidate.answer for candidate in chosen]


def _likeness(candidate: _Verified, chosen: Sequence[_Verified]) -> float:
    """Return the largest Jaccard similarity to a chosen kernel, 0 before the first choice."""
    return max((jaccard(candidate.shingles, other.shingles) for other in chosen), default=0.0)


def _chat(answer: KeptAnswer) -> str:
    """Return a line with the prompt and the answer. Earlier answers in the prompt are not taught."""
    prompt = [
        message | ({"weight": 0} if message["role"] == "assistant" else {}) for message in answer.messages
    ]
    messages = [*prompt, {"role": "assistant", "content": answer.text}]
    return json.dumps({"messages": messages}, ensure_ascii=False) + "\n"
