"""The judge's side of the compile gate: distinct launches, each compiled once in the judge's life."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from kernel_core.errors import GymUnavailable
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Compiled, CompilerFault, Kernel, Launch, NotCompiled
from kernel_core.gym.runner import CANDIDATE_FILE
from kernel_core.gym.runs import Answer, Died, converse_caged
from kernel_core.gym.zygote import Zygote
from kernel_core.records import Verdict
from kernel_core.store import digest_of

_DEADLINE_S = 60.0
_MEMORY_BYTES = 8 << 30
_MAX_PROCESSES = 16
"""The compiler starts an assembler."""
_KEPT_ANSWERS = 4096


class CompileGate:
    """Compiles for one GPU; remembers what it found out."""

    def __init__(self, compilers: Zygote, base: str, gpu: str) -> None:
        self._compilers = compilers
        self._base = base
        self._gpu = gpu
        self._known: OrderedDict[str, tuple[str, int] | None] = OrderedDict()

    def check(self, case: Case) -> None:
        """A launch that does not compile comes before whatever happened while running."""
        passes = [(one.kernels, one.launches) for one in case.recorded]
        if (case.kernels, case.launches) not in passes:
            passes.append((case.kernels, case.launches))  # of one that raised
        for kernels, launches in passes:
            fault = self._fault_of(case.source, kernels, launches)
            if fault is not None:
                case.verdict = None
                case.fail(Verdict.NOT_COMPILED, *fault)
                return

    def _fault_of(
        self, source: str, described: Sequence[Kernel], launches: Sequence[Launch]
    ) -> tuple[str, int] | None:
        kernels = [kernel.model_dump() for kernel in described]
        distinct: dict[str, dict[str, Any]] = {}
        for launch in launches:
            seen = _without_values(launch)
            distinct[digest_of([source, kernels, seen])] = seen
        missing = [launch for key, launch in distinct.items() if key not in self._known]
        if missing:
            fault = self._compile(source, kernels, missing)
            for key in distinct:
                self._known.setdefault(key, fault)
            while len(self._known) > _KEPT_ANSWERS:
                self._known.popitem(last=False)
        return next((fault for key in distinct if (fault := self._known.get(key)) is not None), None)

    def _compile(
        self, source: str, kernels: list[dict[str, Any]], launches: list[dict[str, Any]]
    ) -> tuple[str, int] | None:
        with converse_caged(
            self._compilers,
            "compile",
            self._base,
            _DEADLINE_S,
            memory_bytes=_MEMORY_BYTES,
            cpu_seconds=int(_DEADLINE_S) + 1,
            max_processes=_MAX_PROCESSES,
        ) as talk:
            request = {
                "filename": CANDIDATE_FILE,
                "source": source,
                "kernels": kernels,
                "launches": launches,
                "gpu": self._gpu,
            }
            answer = talk.ask(request, (Compiled, NotCompiled, CompilerFault))
        match answer:
            case Died():
                return f"the compiler gave up: {answer.reason}", 0
            case Answer(claim=CompilerFault() as fault):
                raise compiler_unavailable(fault)
            case Answer(claim=NotCompiled() as refused):
                return refused.failed, refused.line
        return None


def compiler_unavailable(fault: CompilerFault) -> GymUnavailable:
    """What to raise when a compiler could not work for a reason of ours."""
    return GymUnavailable(
        f"the compiler could not work: {fault.fault}; free disk space or memory, then run again"
    )


def _without_values(launch: Launch) -> dict[str, Any]:
    """A launch without what a compiler does not see: its grid, addresses, shapes and strides."""
    args = {}
    for name, value in launch.args.items():
        tensor = value.get("t") if isinstance(value, dict) else None
        args[name] = {"t": [0, *tensor[1:2]]} if isinstance(tensor, list) else value
    return {"launch": launch.launch, "args": args, "options": launch.options}
