"""The judge's side of the compile gate: each distinct launch is compiled once by a judge."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_core.errors import GymUnavailable
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE, first_line
from kernel_core.gym.channel.compiled_products import UNKNOWN
from kernel_core.gym.channel.launch_limits import grid_fault
from kernel_core.gym.channel.messages import Compiled, CompilerFault, Kernel, Launch, NotCompiled
from kernel_core.gym.channel.shared_arena import DTYPES
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.child import Answer, Died, open_caged_child
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Verdict
from kernel_core.store import digest_of

_DEADLINE_S = 60.0
_MEMORY_BYTES = 8 << 30
_MAX_PROCESSES = 16
"""The compiler starts an assembler."""
_KEPT_ANSWERS = 4096
_ALIGNMENT = 16
"""Triton specialises kernels for addresses and integers that are multiples of this."""
_INTEGERS = ((-(2**63), -(2**31)), (0, 2**31), (2**32, 2**63), (2**63, 2**64))
"""The range of each type that Triton gives to integers, and the range beyond. Neighbouring integers are
alike."""


@dataclass(frozen=True, slots=True)
class CompileUnit:
    """Launches of one pass, and how far to compile them."""

    kernels: Sequence[Kernel]
    launches: Sequence[Launch]
    whole: bool
    """True if the kernels are compiled whole. If not, they are only checked to be Triton: they are compiled
    at other sizes too."""
    where: str = ""
    """The sizes at which a fault occurs, for the message."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """The reason why a launch does not compile, and its line in the candidate's text."""

    text: str
    line: int = 0
    exceeds_gpu: bool = False


class CompileGate:
    """Compiles for one GPU and caches the answers."""

    def __init__(self, compilers: ForkServer, base: str, gpu: str) -> None:
        self._compilers = compilers
        self._base = base
        self._gpu = gpu
        self._known: OrderedDict[str, _Fault | frozenset[str]] = OrderedDict()
        """By launch the fault, or the kinds of its products."""

    def check(self, case: Case, parts: Sequence[CompileUnit]) -> None:
        """A launch that does not compile overrides every failure of the run. The case gets the kinds of the
        products of all launches."""
        fault = self._fault_of(case, parts)
        if fault is not None:
            case.fail(Verdict.NOT_COMPILED, fault.text, fault.line, exceeds_gpu=fault.exceeds_gpu)

    def _fault_of(self, case: Case, parts: Sequence[CompileUnit]) -> _Fault | None:
        source = case.source
        keys: list[tuple[str, CompileUnit]] = []
        missing: list[dict[str, Any]] = []
        asked: dict[str, None] = {}
        text = digest_of(source)
        for part in parts:
            kernels = [kernel.model_dump() for kernel in part.kernels]
            free = _free_parameters(source, part.kernels)
            launches = []
            for launch in part.launches:
                seen = _without_values(launch, free[launch.launch])
                key = digest_of([text, kernels[: _num_used(seen)], seen, part.whole])
                keys.append((key, part))
                if key not in self._known and key not in asked:
                    asked[key] = None
                    launches.append(seen)
            if launches:
                missing.append({"kernels": kernels, "launches": launches, "whole": part.whole})
        if missing:
            products, fault = self._compile(source, missing)
            in_order = list(asked)
            self._known |= zip(in_order, products, strict=False)
            if fault is not None:
                self._known[in_order[min(len(products), len(asked) - 1)]] = fault
        outcomes = [(self._known.get(key), part.where) for key, part in keys]
        case.products = set().union(*(outcome for outcome, _ in outcomes if isinstance(outcome, frozenset)))
        faults = ((outcome, where) for outcome, where in outcomes if isinstance(outcome, _Fault))
        refused = next((replace(known, text=where + known.text) for known, where in faults), None)
        while len(self._known) > _KEPT_ANSWERS:
            self._known.popitem(last=False)
        return refused

    def _compile(
        self, source: str, parts: list[dict[str, Any]]
    ) -> tuple[list[frozenset[str]], _Fault | None]:
        """Return the kinds of products of each launch that compiles, in order, and the fault of the next."""
        with open_caged_child(
            self._compilers,
            "compile",
            self._base,
            _DEADLINE_S,
            memory_bytes=_MEMORY_BYTES,
            cpu_seconds=int(_DEADLINE_S) + 1,
            max_processes=_MAX_PROCESSES,
        ) as talk:
            request = {"filename": CANDIDATE_FILE, "source": source, "gpu": self._gpu, "parts": parts}
            answer = talk.ask(request, (Compiled, NotCompiled, CompilerFault))
        match answer:
            case Died():
                return [], _Fault(f"the compiler gave up: {answer.reason}")
            case Answer(claim=CompilerFault() as fault):
                raise compiler_unavailable(fault)
            case Answer(claim=NotCompiled() as refused):
                compiled = [frozenset((UNKNOWN,))] * refused.place
                return compiled, _Fault(refused.failed, refused.line, refused.exceeds_gpu)
            case Answer(claim=Compiled() as done):
                return [frozenset(kinds) for kinds in done.products], None
        raise AssertionError(answer)


def refuse_grids(case: Case, part: CompileUnit) -> None:
    """A launch on a grid that no GPU takes fails when it happens."""
    for launch in part.launches:
        fault = grid_fault(launch.grid)
        if fault is not None:
            case.fail(Verdict.CRASHED, part.where + fault)
            return


def compiler_unavailable(fault: CompilerFault) -> GymUnavailable:
    """The error when a compiler could not work by a fault of the gym."""
    return GymUnavailable(
        f"the compiler could not work: {fault.fault}; free disk space or memory, then run again"
    )


def _free_parameters(source: str, kernels: Sequence[Kernel]) -> list[frozenset[str]]:
    """The parameters of each kernel without an annotation: no other parameter can become a `tl.constexpr`."""
    free: dict[tuple[str, int], frozenset[str]] = {}
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.FunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            names = frozenset(argument.arg for argument in arguments if argument.annotation is None)
            free.setdefault((node.name, first_line(node)), names)
    return [free.get((kernel.name, kernel.line), frozenset()) for kernel in kernels]


def _num_used(launch: dict[str, Any]) -> int:
    """The number of kernels that a launch needs: each uses only earlier ones, and some are arguments."""
    return 1 + max([launch["launch"], *_functions_in(list(launch["args"].values()))])


def _functions_in(values: list[Any]) -> list[int]:
    """The numbers of JIT functions among arguments."""
    numbers: list[int] = []
    for value in values:
        match value:
            case {"jit": int(number)}:
                numbers.append(number)
            case {"l": [*items]}:
                numbers.extend(_functions_in(items))
    return numbers


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
        case {"d": dict(parts)}:
            return {"d": {name: _kind_of(part, is_free=False) for name, part in parts.items()}}
    if is_free and isinstance(value, int) and not isinstance(value, bool) and value != 1:
        smallest = next((low for low, high in _INTEGERS if value < high), 2**64)
        return smallest + (_ALIGNMENT if value % _ALIGNMENT == 0 else _ALIGNMENT + 1)
    return value
