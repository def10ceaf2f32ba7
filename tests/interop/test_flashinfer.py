"""flashinfer-bench's records: round trips both ways, and verdicts on what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from exploit_files import PROBLEMS, text_of

from kernel_core.errors import ConfigError, Corrupt, NotAProblem
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.interop.flashinfer_export import definition_of, evaluation_of, solution_of, trace_of
from kernel_core.interop.flashinfer_import import candidate_of, problem_of
from kernel_core.interop.flashinfer_records import (
    Definition,
    Solution,
    Trace,
    Workload,
    read_record,
    read_records,
    write_record,
)
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Timing, Verdict

SOFTMAX = PROBLEMS["softmax_rows"]
HONEST = Candidate.from_source(text_of("honest_softmax"))

DEFINITION = {
    "name": "scaled_add_w96",
    "op_type": "elementwise",
    "axes": {"rows": {"type": "var", "description": "of a batch"}, "width": {"type": "const", "value": 96}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float32"},
        "y": {"shape": ["rows", "width"], "dtype": "float32", "description": "the second"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["rows", "width"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(x, y, scale):\n    return {'out': x * scale + y}\n",
    "tags": ["status:draft"],
    "constraints": ["rows > 0"],
}
WORKLOAD = {
    "axes": {"rows": 13},
    "inputs": {"x": {"type": "random"}, "y": {"type": "random"}, "scale": {"type": "scalar", "value": 1.5}},
    "uuid": "0f3a",
}
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_add(x_ptr, y_ptr, out_ptr, scale, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * scale + y, mask=mask)


def run(x, y, scale{out}):
    {make}scaled_add[(triton.cdiv(x.numel(), 256),)](x, y, out, scale, x.numel(), BLOCK=256)
    {give}
"""
RETURNING = KERNEL.format(out="", make="out = torch.empty_like(x)\n    ", give="return out")
PASSING = KERNEL.format(out=", out", make="", give="")


def _definition(**changes: object) -> Definition:
    return Definition.model_validate(DEFINITION | changes)


def _solution(content: str, passing: bool, language: str = "triton") -> Solution:
    return Solution.model_validate(
        {
            "name": "mine",
            "definition": DEFINITION["name"],
            "author": "tests",
            "spec": {
                "language": language,
                "target_hardware": ["H100"],
                "entry_point": "main.py::run",
                "dependencies": [],
                "destination_passing_style": passing,
            },
            "sources": [{"path": "main.py", "content": content}],
            "description": "kept",
        }
    )


def _measured(verdict: Verdict) -> Evaluation:
    timing = Timing(median_ms=2.0, ci_low_ms=1.9, ci_high_ms=2.1, num_calls=9, clock="device_events")
    facts = (
        {"timing": timing, "reference_timing": timing, "speedup": 1.0} if verdict is Verdict.CORRECT else {}
    )
    return Evaluation(
        problem_id="p",
        candidate_sha="c",
        verdict=verdict,
        trials=3,
        trials_passed=3 if verdict is Verdict.CORRECT else 1,
        feedback="what happened",
        gym_version="1",
        device="cuda",
        seconds=0.1,
        **facts,
    )


def test_records_are_written_as_they_were_read(tmp_path: Path) -> None:
    for kind, values in (
        (Definition, DEFINITION),
        (Workload, WORKLOAD),
        (Trace, {"definition": "d", "workload": WORKLOAD, "solution": None, "evaluation": None}),
        (Solution, _solution(RETURNING, passing=False).as_json()),
    ):
        file = tmp_path / f"{kind.__name__}.json"
        file.write_text(json.dumps(values))
        write_record(read_record(kind, file), tmp_path / "again.json")
        assert json.loads((tmp_path / "again.json").read_text()) == values


def test_lines_of_traces_are_read_and_a_bad_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    line = json.dumps({"definition": "d", "workload": WORKLOAD})
    file.write_text(f"{line}\n\n{line}\n")
    assert [one.workload.uuid for one in read_records(Trace, file)] == ["0f3a", "0f3a"]
    file.write_text(f"{line}\n{{}}\n")
    with pytest.raises(Corrupt, match="line 2"):
        read_records(Trace, file)


@pytest.mark.parametrize(("content", "passing"), [(RETURNING, False), (PASSING, True)])
def test_a_definition_and_its_solution_are_judged(quick_gym: Gym, content: str, passing: bool) -> None:
    problem = problem_of(_definition(), Workload.model_validate(WORKLOAD))
    assert problem.constants == {"rows": 13, "width": 96}
    assert problem.family == "elementwise"
    right = candidate_of(_definition(), _solution(content, passing))
    wrong = candidate_of(_definition(), _solution(content.replace("x * scale + y", "x + y"), passing))
    found = quick_gym.judge([JudgeRequest(problem=problem, candidate=one, seed=1) for one in (right, wrong)])
    assert [one.verdict for one in found] == [Verdict.CORRECT, Verdict.WRONG], [one.feedback for one in found]


def test_a_problem_comes_back_from_its_definition() -> None:
    definition, workload = definition_of(SOFTMAX)
    assert {name: axis.type for name, axis in definition.axes.items()} == {"M": "var", "N": "var"}
    assert workload.axes == {"M": 8192, "N": 4096}
    again = problem_of(definition, workload)
    facts = ("source", "sha256", "family", "constants", "cpu_constants", "precision")
    assert [getattr(again, fact) for fact in facts] == [getattr(SOFTMAX, fact) for fact in facts]
    smaller = problem_of(definition, workload.model_copy(update={"axes": {"M": 8192, "N": 64}}))
    assert smaller.constants == {"M": 8192, "N": 64}


def test_a_candidate_comes_back_from_its_solution() -> None:
    definition, _ = definition_of(SOFTMAX)
    solution = solution_of(SOFTMAX, definition, HONEST, author="tests", hardware="H100")
    assert candidate_of(definition, solution) == HONEST
    namespace: dict[str, object] = {}
    exec(compile(definition.reference, "reference", "exec"), namespace)
    assert callable(namespace["run"])


def test_an_axis_that_more_than_the_inputs_depend_on_is_constant() -> None:
    text = SOFTMAX.source.replace("torch.softmax(x, dim=-1)", "torch.softmax(x, dim=-1) / M")
    definition, workload = definition_of(parse_problem(text, id="p/scaled", suite="p"))
    assert definition.axes["dim_8192"].value == 8192
    assert workload.axes == {"N": 4096}


@pytest.mark.parametrize("verdict", list(Verdict))
def test_an_evaluation_comes_back_from_its_trace(verdict: Verdict) -> None:
    definition, workload = definition_of(SOFTMAX)
    solution = solution_of(SOFTMAX, definition, HONEST, author="tests", hardware="H100")
    trace = Trace.model_validate_json(json.dumps(trace_of(workload, solution, _measured(verdict)).as_json()))
    assert evaluation_of(trace) == _measured(verdict)


def test_a_foreign_trace_is_no_evaluation_of_ours_and_a_prediction_is_no_time() -> None:
    foreign = {"status": "PASSED", "log": "fine"}
    trace = {"definition": "d", "workload": WORKLOAD, "solution": "s", "evaluation": foreign}
    assert evaluation_of(Trace.model_validate(trace)) is None
    definition, workload = definition_of(SOFTMAX)
    solution = solution_of(SOFTMAX, definition, HONEST, author="tests", hardware="H100")
    untimed = {"timing": None, "reference_timing": None, "speedup": None, "predicted_speedup": 1.1}
    with pytest.raises(ConfigError, match="measured"):
        trace_of(workload, solution, _measured(Verdict.CORRECT).model_copy(update=untimed))


@pytest.mark.parametrize(
    ("changes", "inputs", "words"),
    [
        ({}, {"x": {"type": "safetensors", "path": "a", "tensor_key": "x"}}, "in a file"),
        ({}, {"scale": {"type": "random"}}, "no value for the scalar"),
        ({"reference": "def go(): pass"}, {}, "no function run"),
        ({"reference": "def run(: pass"}, {}, "not Python"),
        ({"reference": "class Model: pass\ndef run(x, y, scale): pass"}, {}, "defines Model"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}}, {}, "cannot draw"),
        ({"inputs": {"x y": {"shape": ["rows"], "dtype": "float32"}}}, {}, "not a Python name"),
    ],
)
def test_what_cannot_be_a_problem_is_refused(changes: dict, inputs: dict, words: str) -> None:
    workload = Workload.model_validate(WORKLOAD | {"inputs": WORKLOAD["inputs"] | inputs})
    with pytest.raises(NotAProblem, match=words):
        problem_of(_definition(**changes), workload)


def test_what_cannot_be_exported_or_judged_is_refused() -> None:
    begin = (
        "def __init__(self):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(1))"
    )
    weighted = SOFTMAX.source.replace("def forward", f"{begin}\n\n    def forward")
    with pytest.raises(NotAProblem, match="weights"):
        definition_of(parse_problem(weighted, id="p/weighted", suite="p"))
    with pytest.raises(NotAProblem, match="cuda"):
        candidate_of(_definition(), _solution(RETURNING, passing=False, language="cuda"))
