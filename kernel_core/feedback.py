"""What a policy reads about its last candidate: neutral, short, and nothing that is not known.

A pure function of the verdict and the facts behind it, at most `MAX_CHARS` long.
"""

from __future__ import annotations

from kernel_core.records import Traffic, Verdict

MAX_CHARS = 300


def describe(
    verdict: Verdict,
    detail: str = "",
    *,
    line: int = 0,
    predicted_speedup: float | None = None,
    traffic: Traffic | None = None,
    unmatched: tuple[str, ...] = (),
) -> str:
    """One or two clauses. `line` is the candidate's own line number, 0 where there is none."""
    place = f"line {line}: " if line else ""
    match verdict:
        case Verdict.MALFORMED:
            text = f"not parsed: {place}{detail}"
        case Verdict.NOT_COMPILED:
            text = f"did not compile: {place}{detail}"
        case Verdict.CRASHED:
            text = f"crashed: {place}{detail}"
        case Verdict.TIMED_OUT:
            text = f"timed out: {detail}"
        case Verdict.WRONG:
            text = f"wrong: {detail}"
            if unmatched:
                text += f"; weights not matched by name and shape: {', '.join(unmatched[:4])}"
        case Verdict.HACKED:
            text = f"not accepted: {detail}"
        case Verdict.CORRECT:
            text = _describe_correct(predicted_speedup, traffic)
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _describe_correct(speedup: float | None, traffic: Traffic | None) -> str:
    if speedup is None or traffic is None:
        return "correct"
    text = f"correct; predicted {speedup:.2f}x of eager on {traffic.gpu}"
    if traffic.own_share is not None:
        text += f"; own kernels do {100 * traffic.own_share:.0f} % of the work"
    launches = "launch" if traffic.num_launches == 1 else "launches"
    return text + f"; {traffic.num_launches} {launches}, {_bytes(traffic.bytes_distinct)} moved"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
