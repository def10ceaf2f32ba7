"""Reward of one turn: a pure function of the text, the judge's findings, and the stage's weights.

    total = Σ over terms of weight · term, plus the penalty of a hack

| term       | worth                                                                                |
|------------|--------------------------------------------------------------------------------------|
| format     | 1 for a kernel that could be taken from the text                                     |
| compile    | 1 when it ran to its end; ½ when it crashed or timed out, because the launches after |
|            | that were never compiled; 0 when not one kernel of its own was launched              |
| correct    | 1 when every trial passed. No partial credit by default: trials draw from one        |
|            | distribution, so passing some is luck or a special case; `partial_credit` pays it    |
| speed      | of a correct kernel, by `speed_form` of its speed-up s ≤ 15: log2(1 + s) / 2 (`log`: |
|            | ½ at parity, 1 at 3×), s (`ratio`), min(s, 3) (`clipped`) or max(s − 1, 0)           |
| own_share  | of a correct kernel: the share of device time spent in its own kernels; where that   |
|            | is not known, what the group's correct kernels usually have                          |
| thinking   | 1 for a thought of reasonable length, fading to ½ when it rambles, 0 without one     |
| length     | 1 for a short kernel, fading to 0                                                    |

Every term but the format of a hacked kernel is 0, so that no cheat earns what honest work earns.
`worth` values a kernel by itself. `reward` or `returns.progress` values a turn of a conversation: by neither
does the same kernel, handed in again, earn anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from kernel_core.config import RewardWeights
from kernel_core.dialogue.turns import Turn
from kernel_core.records import Candidate, Evaluation, RewardTerms, Verdict

SPEEDUP_CAP = 15.0
"""More is always paid more up to here; beyond it a slip of a clock would outweigh a whole group."""
SHORT_KERNEL_CHARS, LONG_KERNEL_CHARS = 4_000, 16_000
GOOD_THOUGHT_CHARS, RAMBLING_CHARS = 2_000, 8_000

SpeedForm = Literal["log", "ratio", "clipped", "above_parity"]

_SPEED_FORMS: dict[SpeedForm, Callable[[float], float]] = {
    "log": lambda s: math.log2(1.0 + s) / 2.0,
    "ratio": lambda s: s,
    "clipped": lambda s: min(s, 3.0),
    "above_parity": lambda s: min(max(s - 1.0, 0.0), 10.0),
}

_COMPILE_CREDIT = {
    Verdict.MALFORMED: 0.0,
    Verdict.NOT_COMPILED: 0.0,
    Verdict.CRASHED: 0.5,
    Verdict.TIMED_OUT: 0.5,
    Verdict.WRONG: 1.0,
    Verdict.HACKED: 0.0,
    Verdict.CORRECT: 1.0,
}


def worth(turn: Turn, weights: RewardWeights, usual_share: float = 0.0) -> RewardTerms:
    """Return the worth of a turn's kernel under a stage's weights, whatever came before it.

    `usual_share` is for a correct kernel with an unknown own-kernel share. Terms are
    unweighted and `total` is their weighted sum; a penalty is in units of reward already.
    """
    evaluation = turn.evaluation
    hacked = evaluation.verdict is Verdict.HACKED
    penalty = weights.hack_penalty if hacked else 0.0
    if not isinstance(turn.candidate, Candidate):
        return RewardTerms(penalty=penalty, total=penalty)
    formatted = evaluation.verdict is not Verdict.MALFORMED
    honest = formatted and not hacked
    terms = {
        "format": float(formatted),
        "compile": compile_term(evaluation),
        "correct": correct_term(evaluation, weights.partial_credit) if honest else 0.0,
        "speed": speed_term(evaluation.best_known_speedup, weights.speed_form),
        "own_share": own_share_term(evaluation, usual_share),
        "thinking": thinking_term(turn.candidate.thinking) if honest else 0.0,
        "length": length_term(turn.candidate.source) if honest else 0.0,
    }
    total = penalty + sum(getattr(weights, name) * value for name, value in terms.items())
    return RewardTerms(**terms, penalty=penalty, total=total)


def reward(turn: Turn, weights: RewardWeights, usual_share: float = 0.0) -> RewardTerms:
    """Return the worth of a turn's kernel; a kernel handed in before earns nothing again.

    Its penalty stays: otherwise handing in the same hack again would be the better choice.
    """
    terms = worth(turn, weights, usual_share)
    return RewardTerms(penalty=terms.penalty, total=terms.penalty) if turn.repeats_earlier else terms


def compile_term(evaluation: Evaluation) -> float:
    """Return the degree to which the candidate's kernels are known to compile, in [0, 1]."""
    provenance = evaluation.provenance
    if provenance is not None and provenance.num_launches == 0:
        return 0.0
    return _COMPILE_CREDIT[evaluation.verdict]


def correct_term(evaluation: Evaluation, partial_credit: bool) -> float:
    """1 for a correct kernel; with partial credit, of a wrong one the share of trials that it passed."""
    if evaluation.correct or not partial_credit:
        return float(evaluation.correct)
    return evaluation.trials_passed / evaluation.trials if evaluation.trials else 0.0


def speed_term(speedup: float | None, form: SpeedForm = "log") -> float:
    """Return a speed-up's reward term, by its form; the log is positive at any speed and 2 at the cap.

    An unknown speed-up earns 0. `above_parity` has no slope below parity, where most kernels begin.
    """
    if speedup is None:
        return 0.0
    bounded = min(max(speedup, 0.0), SPEEDUP_CAP)
    return _SPEED_FORMS[form](bounded)


def own_share_term(evaluation: Evaluation, usual_share: float) -> float:
    """Share of time that a correct kernel spends in its own kernels; the usual share where it is unknown."""
    if not evaluation.correct:
        return 0.0
    share = known_own_share(evaluation)
    return usual_share if share is None else share


def usual_own_share(evaluations: Sequence[Evaluation]) -> float:
    """Return the mean known share of a group's correct kernels; 0 when none is known, which disables the
    term.

    A profile that was lost is no fault of the kernel's. Counted as 0 it would set the kernel back against
    others just like it; counted as usual it neither gains nor loses by it.
    """
    shares = [known_own_share(evaluation) for evaluation in evaluations if evaluation.correct]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else 0.0


def known_own_share(evaluation: Evaluation) -> float | None:
    """Return the measured share of time in the candidate's own kernels, else the predicted one, else None."""
    measured = evaluation.provenance.own_kernel_share if evaluation.provenance else None
    predicted = evaluation.traffic.own_share if evaluation.traffic else None
    return measured if measured is not None else predicted


def thinking_term(thinking: str) -> float:
    """1 for a thought of up to 2,000 characters, linear to ½ at 8,000, 0 for none."""
    if not thinking.strip():
        return 0.0
    return 1.0 - 0.5 * _fraction_between(len(thinking), GOOD_THOUGHT_CHARS, RAMBLING_CHARS)


def length_term(source: str) -> float:
    """1 for a kernel of up to 4,000 characters, linear to 0 at 16,000."""
    return 1.0 - _fraction_between(len(source), SHORT_KERNEL_CHARS, LONG_KERNEL_CHARS)


def _fraction_between(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)
