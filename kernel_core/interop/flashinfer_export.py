"""Export of problems, candidates and evaluations to flashinfer-bench.

A definition needs tensors in and tensors out of one function, so a problem is refused if its `Model` has
weights or buffers. The reference of an exported definition is the problem's whole text, and a `run` after it:
read back, it is the same problem. An evaluation is a trace with our own record at the end of its log.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch

from kernel_core.errors import ConfigError, NotAProblem, first_line
from kernel_core.gym.oracle.problem_module import ProblemModule
from kernel_core.interop.flashinfer_import import RUN_MARK
from kernel_core.interop.flashinfer_records import (
    Axis,
    BuildSpec,
    Definition,
    InputSpec,
    Solution,
    SourceFile,
    TensorSpec,
    Trace,
    Workload,
)
from kernel_core.interop.kernelbench import directives
from kernel_core.problems.source import resize
from kernel_core.records import Candidate, Evaluation, Problem, Verdict

_OWN_RECORD = "kernel-dojo: "
"""Begins the last line of a trace's log."""
_STATUS = {
    Verdict.MALFORMED: "COMPILE_ERROR",
    Verdict.NOT_COMPILED: "COMPILE_ERROR",
    Verdict.CRASHED: "RUNTIME_ERROR",
    Verdict.TIMED_OUT: "TIMEOUT",
    Verdict.WRONG: "INCORRECT_NUMERICAL",
    Verdict.HACKED: "RUNTIME_ERROR",
    Verdict.CORRECT: "PASSED",
}
_UNKNOWN = {"max_relative_error": "NaN", "max_absolute_error": "NaN"}
"""Placeholder values for numbers that the schema requires and an evaluation lacks."""
Shapes = list[tuple[int, ...] | None]
"""One for each input and then each output; None for a scalar."""


def definition_of(problem: Problem) -> tuple[Definition, Workload]:
    """Convert a problem to its definition, with the workload of its own sizes.

    Raises `NotAProblem` where it has none.
    """
    values, outputs = _run_on_meta(problem)
    if any(
        value is not None and not isinstance(value, torch.Tensor | bool | int | float) for value in values
    ):
        raise NotAProblem(f"{problem.id} has inputs that are neither tensors nor numbers")
    shapes = [_shape(value) for value in (*values, *outputs)]
    names = _axis_names(problem, shapes)
    inputs = {f"input_{i}": value for i, value in enumerate(values)}
    specs = {
        name: TensorSpec(shape=axes, dtype=_dtype(value))
        for (name, value), axes in zip(
            [*inputs.items(), *((f"output_{i}", output) for i, output in enumerate(outputs))],
            names,
            strict=True,
        )
    }
    lengths = {
        axis: length
        for axes, shape in zip(names, shapes, strict=True)
        for axis, length in zip(axes or (), shape or (), strict=True)
    }
    definition = Definition(
        name=problem.id.replace("/", "_"),
        op_type=problem.family,
        axes={
            axis: Axis(type="const", value=length) if axis.startswith("dim_") else Axis(type="var")
            for axis, length in lengths.items()
        },
        inputs={name: specs[name] for name in inputs},
        outputs={name: spec for name, spec in specs.items() if name not in inputs},
        reference=f"{directives(problem)}{problem.source}\n{RUN_MARK}\n{_run_text('Model', list(inputs))}",
    )
    workload = Workload(
        axes={axis: length for axis, length in lengths.items() if not axis.startswith("dim_")},
        inputs={
            name: InputSpec(type="random")
            if isinstance(value, torch.Tensor)
            else InputSpec(type="scalar", value=value)
            for name, value in inputs.items()
        },
        uuid=problem.sha256[:32],
    )
    return definition, workload


def solution_of(
    problem: Problem, definition: Definition, candidate: Candidate, author: str, hardware: str
) -> Solution:
    """Convert a candidate to a solution; `hardware` names the GPU that it is for."""
    arguments = ProblemModule(problem.source, problem.id, problem.precision, device="meta").arguments()
    if not _is_literal(arguments):
        raise NotAProblem(f"{problem.id}: the arguments of its Model are not plain values")
    begin = f"def get_init_inputs():\n    return {arguments!r}\n"
    run = f"{begin}\n\n{_run_text('ModelNew', list(definition.inputs))}"
    return Solution(
        name=f"{definition.name}_{candidate.sha256[:12]}",
        definition=definition.name,
        author=author,
        spec=BuildSpec(
            language="triton",
            target_hardware=[hardware],
            entry_point="main.py::run",
            dependencies=[],
            destination_passing_style=False,
        ),
        sources=[SourceFile(path="main.py", content=f"{candidate.source}\n{RUN_MARK}\n{run}")],
        description="",
    )


def trace_of(
    workload: Workload, solution: Solution, evaluation: Evaluation, now: datetime | None = None
) -> Trace:
    """Convert an evaluation to a trace. Raises `ConfigError` for a correct kernel without a measured time."""
    fields: dict[str, Any] = {
        "status": _STATUS[evaluation.verdict],
        "environment": {"hardware": _hardware(evaluation), "libs": _libraries(evaluation)},
        "timestamp": (now or datetime.now(UTC)).isoformat(),
        "log": f"{evaluation.feedback}\n{_OWN_RECORD}{evaluation.model_dump_json()}",
    }
    if evaluation.verdict in (Verdict.CORRECT, Verdict.WRONG):
        fields["correctness"] = dict(_UNKNOWN)
    if evaluation.correct:
        if evaluation.timing is None or evaluation.reference_timing is None:
            raise ConfigError(
                f"{solution.name} has no measured time, only a prediction; a trace needs a measurement"
            )
        fields["performance"] = {
            "latency_ms": evaluation.timing.median_ms,
            "reference_latency_ms": evaluation.reference_timing.median_ms,
            "speedup_factor": evaluation.speedup,
        }
    return Trace(definition=solution.definition, workload=workload, solution=solution.name, evaluation=fields)


def evaluation_of(trace: Trace) -> Evaluation | None:
    """Return our evaluation in a trace that was exported here; None for others: their claims are no
    verdict."""
    log = str((trace.evaluation or {}).get("log", ""))
    _, mark, text = log.rpartition(_OWN_RECORD)
    return Evaluation.model_validate_json(text) if mark else None


def _run_on_meta(problem: Problem) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs without contents. Raises `NotAProblem` where shapes depend on contents."""
    module = ProblemModule(problem.source, problem.id, problem.precision, device="meta")
    inputs = module.inputs()
    model = module.construct(module.arguments())
    if any(True for _ in itertools.chain(model.parameters(), model.buffers())):
        raise NotAProblem(
            f"{problem.id} has weights or buffers, which a definition of flashinfer-bench has not"
        )
    try:
        with torch.no_grad():
            result = model(*inputs)
    except Exception as error:
        raise NotAProblem(f"{problem.id} cannot be run without contents: {first_line(error)}") from error
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if not all(isinstance(output, torch.Tensor) for output in outputs):
        raise NotAProblem(f"{problem.id} gives outputs that are not tensors")
    return inputs, outputs


def _axis_names(problem: Problem, shapes: Shapes) -> list[list[str] | None]:
    """Names of all axes: a constant's name where the length follows that constant alone, else `dim_LENGTH`.

    Each constant is changed by one, and the lengths that follow it are seen. A constant on which more than
    the inputs depend names no axis: a workload could not change it.
    """
    names = [None if shape is None else [f"dim_{length}" for length in shape] for shape in shapes]
    for constant in _constants_of_inputs(problem):
        value = problem.constants[constant]
        assert isinstance(value, int)
        changed = _shapes_at(problem, {constant: value + 1})
        for axes, before, after in zip(names, shapes, changed or [], strict=False):
            for position in range(len(axes or ())):
                if axes and before and after and (before[position], after[position]) == (value, value + 1):
                    axes[position] = constant
    return names


def _constants_of_inputs(problem: Problem) -> list[str]:
    """Return the whole-number constants that are read in `get_inputs` and nowhere else."""
    elsewhere = {
        name.id
        for node in ast.parse(problem.source).body
        if not (isinstance(node, ast.FunctionDef) and node.name == "get_inputs")
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    }
    return [name for name, value in problem.constants.items() if type(value) is int and name not in elsewhere]


def _is_literal(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, bool | int | float | str)


def _shapes_at(problem: Problem, sizes: Mapping[str, int]) -> Shapes | None:
    try:
        inputs, outputs = _run_on_meta(resize(problem, sizes))
    except NotAProblem:
        return None
    return [_shape(value) for value in (*inputs, *outputs)]


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _dtype(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _run_text(class_name: str, inputs: list[str]) -> str:
    names = ", ".join(inputs)
    return f"def run({names}):\n    return {class_name}(*get_init_inputs())({names})\n"


def _hardware(evaluation: Evaluation) -> str:
    gpu = evaluation.platform.gpu if evaluation.platform else None
    return gpu or evaluation.device


def _libraries(evaluation: Evaluation) -> dict[str, str]:
    platform = evaluation.platform
    return {"torch": platform.torch, "triton": platform.triton} if platform else {}
