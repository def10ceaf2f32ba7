"""What the judge makes of problems and candidates of many forms, and what it says about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from exploit_files import FILES, header_of

from kernel_core.errors import ConfigError, NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import at_precision, parse_problem
from kernel_core.records import Candidate, Evaluation, NoCandidate, NotJudged, Precision, Problem, Verdict

JudgeText = Callable[..., Evaluation]

ADD_ONE = """
@triton.jit
def affine(x_ptr, out_ptr, scale, shift, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, x * scale + shift, mask=mask)


def launch(x, scale, shift):
    out = torch.empty_like(x)
    affine[(triton.cdiv(x.numel(), 64),)](x, out, scale, shift, x.numel(), BLOCK=64)
    return out
"""
ONE_MORE = """
N = 300

class Model(nn.Module):
    def forward(self, x):
        return x + 1.0

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("seed", [19, pytest.param(25, marks=pytest.mark.exhaustive)])
def test_what_is_wrong_on_the_last_inputs_only_is_wrong_and_no_hack(judge_text: JudgeText, seed: int) -> None:
    """These seeds show the fault to the replay first."""
    candidate = """
@triton.jit
def add_one(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    x = tl.load(x_ptr + index, mask=mask)
    first = tl.load(x_ptr)
    tl.store(out_ptr + index, x + tl.where(first > 0.7, 1.5, 1.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_one[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""
    evaluation = judge_text(ONE_MORE, candidate, seed=seed)
    assert evaluation.verdict is Verdict.WRONG, evaluation.feedback
    assert "inputs that it had not seen" in evaluation.feedback


def test_what_nobody_wrote_is_the_same_for_the_same_seed(judge_text: JudgeText) -> None:
    """A run that goes on judges again, and tells the policy what it told it."""
    candidate = f"""{ADD_ONE}
class ModelNew(nn.Module):
    def forward(self, x):
        return launch(torch.empty_like(x), 1.0, 1.0)
"""
    first, again, other = (judge_text(ONE_MORE, candidate, seed=seed).feedback for seed in (3, 3, 4))
    assert first == again != other


def test_conv_and_batch_norm_in_train_mode(judge_text: JudgeText) -> None:
    problem = """
B, C, S = 2, 3, 9

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)) * 2.0 + 1.0

def get_inputs():
    return [torch.rand(B, C, S, S)]

def get_init_inputs():
    return [C]
"""
    candidate = (
        ADD_ONE
        + """
class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return launch(self.norm(self.conv(x)), 2.0, 1.0)
"""
    )
    evaluation = judge_text(problem, candidate)
    assert evaluation.correct, evaluation.feedback
    assert evaluation.provenance is not None
    assert 0 < evaluation.provenance.own_kernel_share < 1


def test_scalars_among_inputs_and_an_input_changed_by_the_reference(judge_text: JudgeText) -> None:
    problem = """
N = 70

class Model(nn.Module):
    def forward(self, x, factor: float, steps: int):
        x += steps
        return x * factor

def get_inputs():
    return [torch.rand(N), 2.5, 3]

def get_init_inputs():
    return []
"""
    candidate = (
        ADD_ONE
        + """
class ModelNew(nn.Module):
    def forward(self, x, factor, steps):
        return launch(x, factor, factor * steps)
"""
    )
    assert judge_text(problem, candidate).correct


def test_sizes_replace_the_problems_constants(judge_text: JudgeText) -> None:
    problem = """
N = 68719476736

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(N)]

def get_init_inputs():
    return []
"""
    candidate = (
        ADD_ONE
        + """
class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x, 1.0, 1.0)
"""
    )
    evaluation = judge_text(problem, candidate, N=100)
    assert evaluation.correct
    assert evaluation.traffic is not None
    assert evaluation.traffic.bytes_distinct == pytest.approx(8 * 2**36, rel=1e-6)
    with pytest.raises(ConfigError, match="M"):
        judge_text(problem, candidate, M=100)


def test_half_precision_is_held_to_its_own_tolerance(judge_text: JudgeText) -> None:
    problem = """
N = 200

class Model(nn.Module):
    def forward(self, x):
        return x * 3

def get_inputs():
    return [torch.rand(N).half()]

def get_init_inputs():
    return []
"""
    candidate = (
        ADD_ONE
        + """
class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x, {factor}, 0.0)
"""
    )
    assert judge_text(problem, candidate.format(factor=3.0)).correct
    assert judge_text(problem, candidate.format(factor=3.2)).verdict is Verdict.WRONG


def test_non_finite_values_of_the_reference_are_wanted_too(judge_text: JudgeText) -> None:
    problem = """
class Model(nn.Module):
    def forward(self, x):
        return torch.where(x > 0.5, x, -float("inf"))

def get_inputs():
    return [torch.rand(100)]

def get_init_inputs():
    return []
"""
    candidate = """
@triton.jit
def mask_small(x_ptr, out_ptr, count, fill, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count)
    tl.store(out_ptr + index, tl.where(x > 0.5, x, fill), mask=index < count)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        mask_small[(1,)](x, out, x.numel(), {fill}, BLOCK=128)
        return out
"""
    assert judge_text(problem, candidate.format(fill='-float("inf")')).correct
    refused = judge_text(problem, candidate.format(fill="-1e30"))
    assert refused.verdict is Verdict.WRONG
    assert "expected -inf" in refused.feedback


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        pytest.param(1024, Verdict.CORRECT, marks=pytest.mark.exhaustive),
        (64, Verdict.WRONG),
        (3, Verdict.CORRECT),
    ],
)
def test_a_configuration_that_an_autotuner_may_take_is_right_too(
    judge_text: JudgeText, second: int, verdict: Verdict
) -> None:
    """One that does not compile is left out, as on a GPU."""
    candidate = f"""
@triton.autotune([triton.Config({{"BLOCK": 512}}), triton.Config({{"BLOCK": {second}}})], key=["count"])
@triton.jit
def add_one(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    mask = index < count
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) + 1.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_one[(1,)](x, out, x.numel())
        return out
"""
    evaluation = judge_text(ONE_MORE, candidate)
    assert evaluation.verdict is verdict, evaluation.feedback
    assert ("another configuration" in evaluation.feedback) == (verdict is Verdict.WRONG)


def test_feedback_names_the_line_the_candidate_crashed_on(judge_text: JudgeText) -> None:
    problem = "class Model(nn.Module):\n    def forward(self, x):\n        return x\n\n"
    problem += "def get_inputs():\n    return [torch.rand(4)]\n\ndef get_init_inputs():\n    return []\n"
    candidate = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.no_such_method()\n"
    evaluation = judge_text(problem, candidate)
    assert evaluation.verdict is Verdict.CRASHED
    assert evaluation.feedback.startswith("crashed: line 8: AttributeError: ")


def test_a_launched_kernel_that_does_not_compile_comes_before_a_crash(judge_text: JudgeText) -> None:
    problem = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n\n"
    problem += "def get_inputs():\n    return [torch.rand(4)]\n\ndef get_init_inputs():\n    return []\n"
    candidate = """
@triton.jit
def double(x_ptr, out_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index) * 2)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(1,)](x, out, BLOCK=3)
        raise RuntimeError("later")
"""
    evaluation = judge_text(problem, candidate)
    assert evaluation.verdict is Verdict.NOT_COMPILED
    assert evaluation.feedback.startswith("did not compile: line 9: arange's range must be a power of 2; ")


def test_unmatched_weights_are_named(judge_text: JudgeText) -> None:
    problem = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.rand(3)
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.rand(8)]

def get_init_inputs():
    return []
"""
    candidate = (
        ADD_ONE
        + """
class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x, 1.0, 0.0)
"""
    )
    evaluation = judge_text(problem, candidate)
    assert evaluation.verdict is Verdict.WRONG
    assert evaluation.feedback.endswith("weights not matched by name and shape: weight")


def test_a_layers_class_may_be_an_argument(judge_text: JudgeText) -> None:
    problem = """
N = 300
class Model(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act(0.5)
    def forward(self, x):
        return self.act(x) + 1
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return [nn.LeakyReLU]
"""
    kernel = """
@triton.jit
def leaky(x_ptr, out_ptr, slope, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, tl.where(x > 0, x, slope * x) + 1, mask=at < count)
class ModelNew(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.slope = act(0.5).negative_slope
    def forward(self, x):
        out = torch.empty_like(x)
        leaky[(triton.cdiv(x.numel(), 128),)](x, out, self.slope, x.numel(), BLOCK=128)
        return out
"""
    evaluation = judge_text(problem, kernel)
    assert evaluation.verdict is Verdict.CORRECT, evaluation.feedback


def test_a_reference_that_fails_stops_no_other_request(gym: PooledGym, problems: dict[str, Problem]) -> None:
    text = "import torch\nimport torch.nn as nn\n\n"
    text += "class Model(nn.Module):\n    def forward(self, x):\n        return x @ x\n\n"
    text += "def get_inputs():\n    return [torch.rand(4, 5)]\n\ndef get_init_inputs():\n    return []\n"
    broken = parse_problem(text, id="test/broken", suite="test")
    nothing = Candidate.from_source("class ModelNew(nn.Module):\n    pass\n")
    sound = Candidate.from_source(FILES["honest_softmax"].read_text())
    requests = [
        JudgeRequest(problem=broken, candidate=nothing, seed=1),
        JudgeRequest(problem=problems["softmax_rows"], candidate=sound, seed=1),
        JudgeRequest(problem=broken, candidate=sound, seed=1),
    ]
    first, judged, last = gym.judge(requests)
    assert isinstance(first, NotJudged) and isinstance(last, NotJudged)
    assert first.problem_id == "test/broken"
    assert "the reference of test/broken fails on its own inputs: RuntimeError" in first.reason
    assert isinstance(judged, Evaluation) and judged.verdict is Verdict.CORRECT, judged
    by_error = gym.judge_each(requests[:1])
    assert [type(one) for one in by_error] == [NotAProblem]


def test_no_candidate_is_malformed(gym: PooledGym, problems: dict[str, Problem]) -> None:
    nothing = NoCandidate(reason="no <KERNEL> block")
    [evaluation] = gym.judge([JudgeRequest(problem=problems["relu"], candidate=nothing)])
    assert evaluation.verdict is Verdict.MALFORMED
    assert evaluation.feedback == "not parsed: no <KERNEL> block"


def test_the_same_seed_gives_the_same_evaluation(
    gym: PooledGym, softmax_request: Callable[..., JudgeRequest], problems: dict[str, Problem]
) -> None:
    wrong = Candidate.from_source(
        (softmax_request().candidate.source).replace('other=-float("inf")', "other=0.0")
    )
    requests = [softmax_request(rejudge=True), softmax_request(candidate=wrong, rejudge=True)]
    first, second = gym.judge(requests), gym.judge(requests)
    for one, other in zip(first, second, strict=True):
        assert one.model_dump(exclude={"seconds", "phases_s"}) == other.model_dump(
            exclude={"seconds", "phases_s"}
        )
    assert [one.verdict for one in first] == [Verdict.CORRECT, Verdict.WRONG]


def test_a_correct_evaluation_says_how_it_was_isolated_and_what_moved(
    gym: PooledGym, softmax_request: Callable[..., JudgeRequest], problems: dict[str, Problem]
) -> None:
    [evaluation] = gym.judge([softmax_request(problem=problems["softmax_rows"])])
    assert {"files", "network", "processes", "rlimits"} <= set(evaluation.sandbox)
    assert evaluation.traffic is not None
    assert evaluation.traffic.bytes_distinct == 2 * 4 * 8192 * 4096
    assert evaluation.predicted_speedup == pytest.approx(1.0, abs=0.01)
    assert evaluation.speedup is None


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("parameters", "float16"),
        *(
            pytest.param(name, precision, marks=pytest.mark.exhaustive)
            for name, precision in (
                ("dot", "bfloat16"),
                ("softmax", "float16"),
                ("softmax", "bfloat16"),
                ("parameters", "bfloat16"),
                ("dot", "float16"),
            )
        ),
    ],
)
def test_kernels_are_judged_at_the_problems_precision(
    gym: PooledGym, problems: dict[str, Problem], name: str, precision: Precision
) -> None:
    file = FILES[f"honest_{name}"]
    problem = at_precision(problems[header_of(file)["problem"]], precision)
    single = "def forward(self, x):", "def forward(self, x):\n        x = x.float()"
    requests = [
        JudgeRequest(problem=problem, candidate=Candidate.from_source(text))
        for text in (file.read_text(), file.read_text().replace(*single))
    ]
    honest, other_dtype = gym.judge(requests if name != "dot" else requests[:1] * 2)
    assert honest.correct, honest.feedback
    assert name == "dot" or other_dtype.verdict is Verdict.WRONG
    assert problem.id.endswith(precision)


def test_bfloat16_is_computed_as_numbers(judge_text: JudgeText) -> None:
    problem = """
class Model(nn.Module):
    def forward(self, x, y):
        larger = torch.where(x > y, x - y, torch.maximum(-x, y * 2))
        return larger, larger.sum(1), larger.amax(1), torch.cumsum(larger, 1), x * y + 1

def get_inputs():
    return [torch.randn(4, 16).bfloat16(), torch.randn(4, 16).bfloat16()]

def get_init_inputs():
    return []
"""
    candidate = """
@triton.jit
def compute(x_ptr, y_ptr, larger_ptr, sum_ptr, max_ptr, scan_ptr, fused_ptr, N: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, N)
    x, y = tl.load(x_ptr + row * N + column), tl.load(y_ptr + row * N + column)
    larger = tl.where(x > y, x - y, tl.maximum(-x, y * 2))
    tl.store(larger_ptr + row * N + column, larger)
    tl.store(sum_ptr + row, tl.sum(larger, 0))
    tl.store(max_ptr + row, tl.max(larger, 0))
    tl.store(scan_ptr + row * N + column, tl.cumsum(larger, 0))
    tl.store(fused_ptr + row * N + column, tl.fma(x, y, tl.full((N,), 1.0, tl.bfloat16)))


class ModelNew(nn.Module):
    def forward(self, x, y):
        larger, scan, fused = (torch.empty_like(x) for _ in range(3))
        total, most = (torch.empty(x.shape[0], dtype=x.dtype, device=x.device) for _ in range(2))
        compute[(x.shape[0],)](x, y, larger, total, most, scan, fused, N=x.shape[1])
        return larger, total, most, scan, fused
"""
    evaluation = judge_text(problem, candidate)
    assert evaluation.correct, evaluation.feedback
