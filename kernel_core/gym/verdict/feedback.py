"""The feedback to a policy about its last candidate: neutral, short, and based on facts.

A pure function of the verdict and the facts behind it, at most `MAX_CHARS` long.
"""

from __future__ import annotations

import re

from kernel_core.records import BaselineKind, KernelUse, Traffic, Verdict

MAX_CHARS = 300
_MAX_NAME = 40
_ADVICE = {
    "range must be a power of 2": "round up with triton.next_power_of_2, and mask what lies beyond",
    "must be of type tl.constexpr": "declare the parameter as NAME: tl.constexpr",
    r"has no attribute '(libdevice|tanh|erfc?|pow|asin|acos|atan2?)'|math has no attribute": (
        "take it from libdevice: from triton.language.extra import libdevice"
    ),
    "is not defined in the kernel": "a kernel knows tl, @triton.jit functions and tl.constexpr numbers",
    r"No module named 'triton\.ops": "it was removed in Triton 3; write the kernel out",
    "^MemoryError": "take the shapes of what it allocates from the inputs",
    "out-of-bounds": "mask it: mask=offsets < size",
    "^Race": "give each program elements of its own, or use atomics",
    r"ModelNew.__init__\(\)": "it is called as Model is, with what get_init_inputs gives",
    "is a NoneType": "forward has to return it",
    "was ever written": "do the mask and the grid reach every element",
    r"is (nan|-?inf), expected": "an exponential overflows or vanishes there",
    "has dtype": "make the output with the expected dtype",
    "was changed in place": "write to memory of your own, such as torch.empty_like(x)",
    "no kernel of its own": "launch a @triton.jit function in forward",
    "do not depend on its kernels": "library operators compute them; return what a kernel wrote",
    "only move data": "let a kernel compute what library operators compute now",
    "on other inputs": "host code may take shapes from the inputs, but no numbers",
}
"""Advice by a pattern of the fault."""
_BASELINES: dict[BaselineKind, str] = {
    "eager": "eager",
    "eager_tf32": "eager (TF32)",
    "compile": "torch.compile",
    "compile_tf32": "torch.compile (TF32)",
}


def describe(
    verdict: Verdict,
    detail: str = "",
    *,
    line: int = 0,
    predicted_speedup: float | None = None,
    speedup: float | None = None,
    baseline: BaselineKind | None = None,
    own_share: float | None = None,
    num_launches: int = 0,
    traffic: Traffic | None = None,
    unmatched: tuple[str, ...] = (),
    slowest: KernelUse | None = None,
    bandwidth_share: float | None = None,
    is_unknown: bool = False,
    resized: str = "",
) -> str:
    """One or two clauses. `line` is the candidate's own line number, 0 where there is none. `resized` names
    numbers in its text that are the problem's own sizes, where it was judged at others."""
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
            if speedup is not None:
                text = f"correct; {speedup:.2f}x of {_BASELINES[baseline or 'eager']}"
            elif predicted_speedup is not None and traffic is not None:
                text = f"correct; predicted {predicted_speedup:.2f}x of eager on {traffic.gpu}"
            elif is_unknown:
                text = (
                    "correct, provenance unknown: host code reads numbers from the inputs; no speed is given"
                )
            else:
                text = "correct"
            text += _describe_work(own_share, num_launches, traffic)
            text += _describe_use(slowest, bandwidth_share)
    text = " ".join(text.split())
    advice = next((text for pattern, text in _ADVICE.items() if detail and re.search(pattern, detail)), "")
    if advice and len(text) + len(advice) + 2 <= MAX_CHARS:
        text += f"; {advice}"
    if resized and verdict in (Verdict.WRONG, Verdict.CRASHED) and len(text) + len(resized) + 2 <= MAX_CHARS:
        text += f"; {resized}"
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def _describe_work(own_share: float | None, num_launches: int, traffic: Traffic | None) -> str:
    text = ""
    if traffic is not None:
        own_share, num_launches = traffic.own_share, traffic.num_launches
    if own_share is not None:
        text += f"; own kernels do {100 * own_share:.0f} % of the work"
    if num_launches:
        text += f"; {num_launches} {'launch' if num_launches == 1 else 'launches'}"
    return text + (f", {_bytes(traffic.bytes_distinct)} moved" if traffic is not None else "")


def _describe_use(slowest: KernelUse | None, bandwidth_share: float | None) -> str:
    """The use of a GPU's resources, which tells a slow kernel from a full GPU."""
    text = ""
    if slowest is not None:
        name = slowest.name if len(slowest.name) <= _MAX_NAME else slowest.name[: _MAX_NAME - 1] + "…"
        spilled = f", {slowest.spilled_bytes} B spilled" if slowest.spilled_bytes else ""
        text += (
            f"; {name}: {100 * slowest.time_share:.0f} % of the time, {slowest.registers} registers{spilled}"
            f", {_bytes(slowest.shared_bytes)} shared, occupancy {100 * slowest.occupancy:.0f} %"
        )
    if bandwidth_share is not None:
        text += f"; inputs and outputs move at {100 * bandwidth_share:.0f} % of the memory's peak"
    return text


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
