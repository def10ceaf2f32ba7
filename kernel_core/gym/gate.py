"""The judge's side of the compile gate: distinct launches, each compiled once in the judge's life."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from kernel_core.errors import GymUnavailable
from kernel_core.gym.arena import DTYPES
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Compiled, CompilerFault, Kernel, Launch, NotCompiled
from kernel_core.gym.launch_limits import grid_fault
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
_ALIGNMENT = 16
"""Of addresses and integers, whose multiples Triton knows as such."""
_INTEGERS = ((-(2**63), -(2**31)), (0, 2**31), (2**32, 2**63), (2**63, 2**64))
"""One of each type that Triton gives to integers, and what is beyond those; the next ones are alike."""


class CompileGate:
    """Compiles for one GPU; remembers what it found out."""

    def __init__(self, compilers: Zygote, base: str, gpu: str) -> None:
        self._compilers = compilers
        self._base = base
        self._gpu = gpu
        self._known: OrderedDict[str, tuple[str, int] | None] = OrderedDict()

    def check_unseen(self, case: Case, kernels: Sequence[Kernel], launches: Sequence[Launch]) -> None:
        """Launches that would happen at the problem's own sizes must compile too."""
        fault = self._fault_of(case.source, kernels, launches)
        if fault is not None:
            case.fail(Verdict.NOT_COMPILED, f"at the problem's own sizes: {fault[0]}", fault[1])

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
        for _, launches in passes:
            refuse_grids(case, launches)

    def _fault_of(
        self, source: str, described: Sequence[Kernel], launches: Sequence[Launch]
    ) -> tuple[str, int] | None:
        kernels = [kernel.model_dump() for kernel in described]
        distinct: dict[str, dict[str, Any]] = {}
        free = _free_parameters(source, described)
        for launch in launches:
            seen = _without_values(launch, free[launch.launch])
            distinct[digest_of([source, kernels[: _num_used(seen)], seen])] = seen
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


def refuse_grids(case: Case, launches: Sequence[Launch], where: str = "") -> None:
    """A launch on a grid that no GPU takes fails when it happens."""
    for launch in launches:
        fault = grid_fault(launch.grid)
        if fault is not None:
            case.fail(Verdict.CRASHED, where + fault)
            return


def compiler_unavailable(fault: CompilerFault) -> GymUnavailable:
    """What to raise when a compiler could not work for a reason of ours."""
    return GymUnavailable(
        f"the compiler could not work: {fault.fault}; free disk space or memory, then run again"
    )


def _free_parameters(source: str, kernels: Sequence[Kernel]) -> list[frozenset[str]]:
    """Of each kernel, the parameters without annotation: nothing else makes a `tl.constexpr` of one."""
    free: dict[tuple[str, int], frozenset[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            names = frozenset(one.arg for one in arguments if one.annotation is None)
            free.setdefault((node.name, first), names)
    return [free.get((kernel.name, kernel.line), frozenset()) for kernel in kernels]


def _num_used(launch: dict[str, Any]) -> int:
    """How many of the kernels a launch needs: each uses only earlier ones, and some are arguments."""
    arguments = [value.get("jit") for value in launch["args"].values() if isinstance(value, dict)]
    return 1 + max([launch["launch"], *(number for number in arguments if isinstance(number, int))])


def _without_values(launch: Launch, free: frozenset[str]) -> dict[str, Any]:
    """A launch without what a compiler does not see: its grid, addresses, shapes and strides, and of numbers
    that are no constants all but what Triton specialises on."""
    args = {name: _kind_of(value, name in free) for name, value in launch.args.items()}
    return {"launch": launch.launch, "args": args, "options": launch.options}


def _kind_of(value: Any, is_free: bool) -> Any:
    """An argument that stands for all that are compiled alike."""
    match value:
        case {"t": [_, str(dtype), int(offset), *_]} if dtype in DTYPES:
            return {"t": [0, dtype, offset * DTYPES[dtype].itemsize % _ALIGNMENT]}
        case {"l": [*items]}:
            return {"l": [_kind_of(item, is_free) for item in items]}
    if is_free and isinstance(value, int) and not isinstance(value, bool) and value != 1:
        smallest = next((low for low, high in _INTEGERS if value < high), 2**64)
        return smallest + (_ALIGNMENT if value % _ALIGNMENT == 0 else _ALIGNMENT + 1)
    return value
