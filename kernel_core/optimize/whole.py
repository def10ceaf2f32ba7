"""Whole-model proof: winners put back at the best places, outputs compared, what does not help taken out.

It runs in a process of its own: kernels of any author execute there, and on a CPU Triton's interpreter has to
be chosen before the kernels are imported. A CPU shows that outputs are right; its speed is a prediction.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernel_core.errors import ConfigError, first_line
from kernel_core.optimize.dispatch import INSTALLED
from kernel_core.optimize.library import PACKAGE, kernel_name
from kernel_core.optimize.search import Confirmed
from kernel_core.optimize.target import Target, load_target
from kernel_core.python_module import import_environment, module_command
from kernel_core.records import Record

DEADLINE_S = 1800.0
MOST_ERROR = {"torch.float16": 2e-2, "torch.bfloat16": 2e-2}
"""Largest norm of the difference over the norm of the outputs; float32 has `MOST_ERROR_FLOAT32`."""
MOST_ERROR_FLOAT32 = 1e-3
_WARM_UP, _TIMED = 5, 30


class Whole(Record):
    """The whole module with its kernels."""

    places: dict[str, tuple[str, ...]]
    """Paths by kernel, of those that stayed."""
    taken_out: dict[str, str]
    """Parts without a kernel in place, with the reason."""
    error: float | None
    """Relative error of the outputs with all kernels that stayed; None if nothing stayed."""
    device: str
    eager_ms: float | None = None
    compiled_ms: float | None = None
    """`torch.compile` of the original; None on a CPU or where it failed."""
    kernels_ms: float | None = None
    """Eager mode with the kernels that serve it best."""
    compiled_kernels_ms: float | None = None
    """`torch.compile` with the kernels that serve it best; None on a CPU or where it failed."""
    fastest: str = ""
    """The way to run the whole that takes least time, if it was measured."""
    predicted_eager_ms: float
    predicted_kernels_ms: float | None
    """Eager mode less what each kernel saves; None where times were measured."""
    table: tuple[dict[str, Any], ...] = ()
    """Rows of the library."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of the whole, for a table."""
        rows: list[dict[str, Any]] = [
            {"what": "predicted eager, ms", "value": self.predicted_eager_ms},
            {"what": "predicted with kernels, ms", "value": self.predicted_kernels_ms},
            {"what": "measured eager, ms", "value": self.eager_ms},
            {"what": "measured torch.compile, ms", "value": self.compiled_ms},
            {"what": "measured eager with kernels, ms", "value": self.kernels_ms},
            {"what": "measured torch.compile with kernels, ms", "value": self.compiled_kernels_ms},
            {"what": "fastest", "value": self.fastest or None},
            {"what": f"relative error of the outputs ({self.device})", "value": self.error},
            {"what": "kernels in place", "value": sum(map(len, self.places.values()))},
        ]
        rows += [{"what": f"no kernel: {name}", "value": reason} for name, reason in self.taken_out.items()]
        return [row for row in rows if row["value"] is not None]


def choose_places(winners: Sequence[Confirmed]) -> dict[str, list[str]]:
    """Return the places of each kernel, by name, that save the most together: no place is inside another."""
    saved = {
        path: (winner.saved_ms, kernel_name(winner))
        for winner in winners
        if winner.candidate is not None and winner.saved_ms > 0
        for path in winner.part.paths
    }
    best: dict[str, tuple[float, list[str]]] = {}
    for path in sorted(saved, key=lambda path: (-len(path.split(".")) if path else 1, path)):
        inside = [inner for inner in best if not path or inner.startswith(f"{path}.")]
        total = sum(best[inner][0] for inner in inside)
        places = [place for inner in inside for place in best[inner][1]]
        for inner in inside:
            del best[inner]
        own = saved[path][0]
        best[path] = (own, [path]) if own >= total else (total, places)
    chosen: defaultdict[str, list[str]] = defaultdict(list)
    for _, places in best.values():
        for place in places:
            chosen[saved[place][1]].append(place)
    return dict(chosen)


def prove(target: str, folder: Path, places: Mapping[str, Sequence[str]], device: str) -> dict[str, Any]:
    """Run `python -m kernel_core.optimize.whole` and return what it found out.

    Raises ConfigError where the process fails: the target's own call is not repeatable, or takes too long.
    """
    command = module_command("kernel_core.optimize.whole", target, str(folder.resolve()), device)
    environment = import_environment()
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    log = folder.with_name("whole.log")
    try:
        with log.open("w") as errors:
            done = subprocess.run(
                command,
                env=environment,
                input=json.dumps(places),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=DEADLINE_S,
            )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the whole of {target} with its kernels takes over {DEADLINE_S:.0f} s; give smaller inputs"
        ) from error
    if done.returncode:
        last = (log.read_text().strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"the whole of {target} with its kernels does not run: {last} (see {log})")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _main(target: str, folder: str, device: str) -> None:
    """Compare and time; print the report as JSON on the last line."""
    places: dict[str, list[str]] = json.load(sys.stdin)
    if device == "cpu":
        from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter

        prepare_interpreter()
    sys.path.insert(0, str(Path(folder).parent))
    sys.stdout.write(json.dumps(_compared(load_target(target, device), places, device)) + "\n")


def _compared(target: Target, places: dict[str, list[str]], device: str) -> dict[str, Any]:
    library = importlib.import_module(PACKAGE)
    expected = _tensors(target.call())
    taken_out: dict[str, str] = {}

    def error_with(names: Sequence[str]) -> float:
        library.uninstall(target.module)
        paths = library.install(target.module, names)
        with _counted(target, paths) as ran:
            error = error_of(target.call())
        return error if ran == set(paths) else float("nan")

    def error_of(outputs: Any) -> float:
        return _error(_tensors(outputs), expected)

    limit = max(MOST_ERROR.get(str(tensor.dtype), MOST_ERROR_FLOAT32) for tensor in expected)
    names = list(places)
    error = _or_infinite(lambda: error_with(names))
    if not error <= limit:
        for name in list(names):
            alone = _or_infinite(lambda name=name: error_with([name]))  # type: ignore[misc]
            if not alone <= limit:
                names.remove(name)
                taken_out[name] = _reason(alone)
        error = _or_infinite(lambda: error_with(names)) if names else 0.0
        if not error <= limit:
            taken_out |= dict.fromkeys(names, f"together: {_reason(error)}")
            names = []
    report: dict[str, Any] = {"taken_out": taken_out, "names": names, "error": error if names else None}
    if device == "cuda":
        report |= _timed(target, library, names, taken_out, error_of, limit)
    return report


@contextmanager
def _counted(target: Target, paths: Sequence[str]) -> Iterator[set[str]]:
    """Collect the paths where kernels run, and not the original, while the block lasts."""
    ran: set[str] = set()
    handles = []
    for path in paths:
        _, kernel = target.module.get_submodule(path).__dict__[INSTALLED]
        handles.append(kernel.register_forward_hook(lambda *_, path=path: ran.add(path)))
    try:
        yield ran
    finally:
        for handle in handles:
            handle.remove()


def _reason(error: float) -> str:
    if math.isnan(error):
        return "the example call does not fit its contract"
    return "it raises" if math.isinf(error) else f"the outputs differ by {error:.2g} of their norm"


def _timed(
    target: Target,
    library: Any,
    names: list[str],
    taken_out: dict[str, str],
    error_of: Callable[[Any], float],
    limit: float,
) -> dict[str, Any]:
    """Time eager mode and `torch.compile` on a GPU, without kernels and with those that help.

    Kernels stay only where the fastest way with them beats both ways without.
    """

    def milliseconds(kept: Sequence[str], is_compiled: bool) -> float:
        library.uninstall(target.module)
        library.install(target.module, kept)
        call = _compiled(target) if is_compiled else target.call
        try:
            error = error_of(call()) if kept else 0.0
            return _median_ms(call) if error <= limit else math.inf
        except Exception as error:  # the compiler's, on a module that it does not take
            _report(f"{type(error).__name__}: {first_line(error)}")
            return math.inf

    ways = {"eager": False, "torch.compile": True}
    plain = {way: milliseconds([], is_compiled) for way, is_compiled in ways.items()}
    _report(f"without kernels: {plain}")
    with_kernels: dict[str, tuple[float, list[str], dict[str, str]]] = {}
    for way, is_compiled in ways.items() if names else ():
        kept, reasons, fastest = list(names), dict[str, str](), milliseconds(names, is_compiled)
        for name in names if len(names) > 1 else ():
            rest = [other for other in kept if other != name]
            without = milliseconds(rest, is_compiled) if rest else math.inf
            if without <= fastest:
                reasons[name] = f"{way} takes {without:.4f} ms without it, {fastest:.4f} ms with it"
                kept, fastest = rest, without
        with_kernels[way] = fastest, kept, reasons
        _report(f"{way} with {', '.join(kept)}: {fastest:.4f} ms")
    best = min(with_kernels, key=lambda way: with_kernels[way][0], default="")
    fastest_ms, kept, reasons = with_kernels.get(best, (math.inf, [], {}))
    usual = min(plain, key=lambda way: plain[way])
    if fastest_ms >= plain[usual]:
        reason = f"{usual} without kernels takes {plain[usual]:.4f} ms, the whole with it {fastest_ms:.4f} ms"
        best, kept, reasons = "", [], dict.fromkeys(names, reason)
    timed = {
        "eager_ms": plain["eager"],
        "compiled_ms": _or_none(plain["torch.compile"]),
        "kernels_ms": _or_none(with_kernels["eager"][0]) if with_kernels else None,
        "compiled_kernels_ms": _or_none(with_kernels["torch.compile"][0]) if with_kernels else None,
        "fastest": f"{best} with kernels" if best else usual,
        "names": kept,
        "taken_out": taken_out | reasons,
    }
    return timed if kept else timed | {"error": None}


def _report(line: str) -> None:
    """Write to standard error what becomes known."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _or_none(time_ms: float) -> float | None:
    return time_ms if math.isfinite(time_ms) else None


def _compiled(target: Target) -> Callable[[], Any]:
    """Return the example call under `torch.compile`, which forgets what it compiled before."""
    torch.compiler.reset()
    compiled = torch.compile(target.module)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*target.args, **target.kwargs)

    return call


def _median_ms(call: Callable[[], Any]) -> float:
    """Return the median device time of a call in milliseconds."""
    for _ in range(_WARM_UP):
        call()
    starts, ends = ([torch.cuda.Event(enable_timing=True) for _ in range(_TIMED)] for _ in range(2))
    for start, end in zip(starts, ends, strict=True):
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in zip(starts, ends, strict=True))
    return times[_TIMED // 2]


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _error(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Return the largest norm of a difference over the norm of the output; infinite for other shapes."""
    worst = 0.0
    for output, wanted in zip(outputs, expected, strict=True):
        if output.shape != wanted.shape or output.dtype != wanted.dtype:
            return float("inf")
        norm = float(wanted.double().norm()) or 1.0
        worst = max(worst, float((output.double() - wanted.double()).norm()) / norm)
    return worst


def _or_infinite(measure: Callable[[], float]) -> float:
    """Return the error of the outputs; infinite where a kernel raises, NaN where it does not run."""
    try:
        return measure()
    except Exception:
        return float("inf")


if __name__ == "__main__":
    _main(*sys.argv[1:])
