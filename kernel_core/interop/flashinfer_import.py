"""Import of problems and candidates from flashinfer-bench.

A definition with one workload is a problem: the axes become constants of a module, so sizes can be changed as
usual. A solution is a candidate: a `ModelNew` that calls its function. What cannot be said in our terms is
refused: inputs from files, languages other than Python and Triton, solutions of several files.
"""

from __future__ import annotations

import ast
import keyword

from kernel_core.errors import NotAProblem
from kernel_core.interop.flashinfer_records import Definition, InputSpec, Solution, TensorSpec, Workload
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Candidate, Problem

RUN_MARK = "# kernel-dojo: what follows is for flashinfer-bench"
"""Marker in exported text between our own text and flashinfer-bench's additions."""
LANGUAGES = ("python", "triton")
_INTEGER_RANGE = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024), "int64": (-1024, 1024)}
"""Ranges of flashinfer-bench's integer draws."""
_NORMAL = ("float32", "float16", "bfloat16")
_EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")
_OWN_NAMES = ("Model", "get_inputs", "get_init_inputs")


def problem_of(definition: Definition, workload: Workload) -> Problem:
    """Convert a definition to a problem at a workload's sizes.

    Raises `NotAProblem` where it cannot be one.
    """
    id_ = f"flashinfer/{definition.name}/{workload.uuid}"
    own, mark, _ = definition.reference.partition(f"\n{RUN_MARK}\n")
    if mark:
        problem = parse_problem(own, id=id_, suite="flashinfer", name=definition.name)
        return resize(problem, {n: v for n, v in workload.axes.items() if problem.constants.get(n) != v})
    _refuse_clashes(definition, id_)
    inputs = ", ".join(definition.inputs)
    draws = [_draw(name, spec, workload.inputs.get(name), id_) for name, spec in definition.inputs.items()]
    text = "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            "",
            definition.reference.strip(),
            "",
            "",
            *(f"{name} = {value}" for name, value in _sizes(definition, workload, id_).items()),
            "",
            "",
            "class Model(nn.Module):",
            f"    def forward(self, {inputs}):",
            f"        outputs = run({inputs})",
            "        if isinstance(outputs, dict):",
            f"            outputs = tuple(outputs[name] for name in {list(definition.outputs)!r})",
            "        if isinstance(outputs, (tuple, list)) and len(outputs) == 1:",
            "            return outputs[0]",
            "        return tuple(outputs) if isinstance(outputs, list) else outputs",
            "",
            "",
            "def get_inputs():",
            f"    return [{', '.join(draws)}]",
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
    )
    return parse_problem(text, id=id_, suite="flashinfer", name=definition.name, family=definition.op_type)


def candidate_of(definition: Definition, solution: Solution) -> Candidate:
    """Convert a solution to a candidate that calls it. Raises `NotAProblem` where it cannot be one."""
    if solution.spec.language not in LANGUAGES:
        raise NotAProblem(f"{solution.name} is in {solution.spec.language}; wanted one of {LANGUAGES}")
    if len(solution.sources) != 1:
        raise NotAProblem(f"{solution.name} has {len(solution.sources)} files; a candidate is one file")
    own, mark, _ = solution.sources[0].content.partition(f"\n{RUN_MARK}\n")
    if mark:
        return Candidate.from_source(own)
    function = solution.spec.entry_point.rpartition("::")[2]
    call = _passing_call if solution.spec.destination_passing_style else _returning_call
    lines = [
        solution.sources[0].content.rstrip(),
        "",
        "",
        "import torch",
        "import torch.nn as nn",
        "",
        "",
        "class ModelNew(nn.Module):",
        f"    def forward(self, {', '.join(definition.inputs)}):",
        *(f"        {line}" for line in call(definition, function)),
    ]
    return Candidate.from_source("\n".join(lines))


def _returning_call(definition: Definition, function: str) -> list[str]:
    return [
        f"outputs = {function}({', '.join(definition.inputs)})",
        "if isinstance(outputs, dict):",
        f"    outputs = tuple(outputs[name] for name in {list(definition.outputs)!r})",
        "if isinstance(outputs, (tuple, list)) and len(outputs) == 1:",
        "    return outputs[0]",
        "return tuple(outputs) if isinstance(outputs, list) else outputs",
    ]


def _passing_call(definition: Definition, function: str) -> list[str]:
    """Outputs are made first, with sizes that the inputs' shapes give, and passed last."""
    sizes = {name: str(axis.value) for name, axis in definition.axes.items() if axis.type == "const"}
    for name, spec in definition.inputs.items():
        for position, axis in enumerate(spec.shape or ()):
            sizes.setdefault(axis, f"{name}.shape[{position}]")
    first = next((name for name, spec in definition.inputs.items() if spec.shape is not None), None)
    if first is None:
        raise NotAProblem(f"{definition.name} has no tensor among its inputs")
    lines = []
    for name, spec in definition.outputs.items():
        missing = [axis for axis in spec.shape or () if axis not in sizes]
        if missing:
            raise NotAProblem(f"{definition.name}: no input says how long the axis {missing[0]} of {name} is")
        shape = ", ".join(sizes[axis] for axis in spec.shape or ())
        lines.append(f"{name} = torch.empty(({shape},), dtype=torch.{spec.dtype}, device={first}.device)")
    outputs = ", ".join(definition.outputs)
    lines.append(f"{function}({', '.join(definition.inputs)}, {outputs})")
    return [*lines, f"return {outputs}"]


def _sizes(definition: Definition, workload: Workload, id_: str) -> dict[str, int]:
    sizes = {}
    for name, axis in definition.axes.items():
        value = axis.value if axis.type == "const" else workload.axes.get(name)
        if value is None:
            raise NotAProblem(f"{id_}: the workload has no value for the axis {name}")
        sizes[name] = value
    return sizes


def _draw(name: str, spec: TensorSpec, origin: InputSpec | None, id_: str) -> str:
    """Return the expression that draws an input."""
    if origin is not None and origin.type == "safetensors":
        raise NotAProblem(f"{id_}: the input {name} is in a file; only random and scalar inputs are read")
    if spec.shape is None:
        if origin is None or origin.value is None:
            raise NotAProblem(f"{id_}: the workload has no value for the scalar {name}")
        return repr(origin.value)
    shape = f"({', '.join(spec.shape)},)" if spec.shape else "()"
    if spec.dtype in _NORMAL:
        return f"torch.randn({shape}, dtype=torch.{spec.dtype})"
    if spec.dtype in _EIGHT_BITS:
        return f"torch.randn({shape}).clamp(-2, 2).to(torch.{spec.dtype})"
    if spec.dtype == "bool":
        return f"torch.randint(0, 2, {shape}, dtype=torch.bool)"
    if spec.dtype in _INTEGER_RANGE:
        low, high = _INTEGER_RANGE[spec.dtype]
        return f"torch.randint({low}, {high}, {shape}, dtype=torch.{spec.dtype})"
    raise NotAProblem(f"{id_}: the input {name} has the type {spec.dtype}, which torch cannot draw")


def _refuse_clashes(definition: Definition, id_: str) -> None:
    try:
        tree = ast.parse(definition.reference)
    except SyntaxError as error:
        raise NotAProblem(f"{id_}: the reference is not Python: {error}") from error
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if "run" not in defined:
        raise NotAProblem(f"{id_}: the reference has no function run")
    clash = sorted((set(_OWN_NAMES) | set(definition.axes)) & defined)
    if clash:
        raise NotAProblem(f"{id_}: the reference defines {clash[0]}, which a problem defines as well")
    for name in (*definition.axes, *definition.inputs, *definition.outputs):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise NotAProblem(f"{id_}: {name!r} is not a Python name")
