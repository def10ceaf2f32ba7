"""Problems that ask for gradients: kernels that are right forward and backward are accepted, and each that is
wrong in one place is refused, with the name of what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.numerics.compare import compare_values, value_fault
from kernel_core.gym.oracle.need import inputs_at
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import tensor_bytes
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.gradients import forward_alone, wanted_gradients
from kernel_core.problems.load import load_file
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Verdict

from .conftest import HEAD

_PROBLEMS = Path(__file__).parents[2] / "data" / "backward"
_KERNELS = {file.stem: file.read_text() for file in (Path(__file__).with_name("backward")).glob("*.py")}
_SUITE = {file.stem: load_file(file) for file in sorted(_PROBLEMS.glob("*.py"))}
_WRONG = {
    ("softmax_scaled", "above - tl.sum(p * above, 0)", "above"): "gradient of input 0",
    ("softmax_scaled", "return dx, dw.sum(0)", "return dx, dw[0]"): "gradient of weight",
    ("softmax_scaled", "return dx, dw.sum(0)", "return dx, None"): "gradient of weight",
    ("softmax_scaled", "e / tl.sum(e, 0)", "e"): "output",
    ("swiglu", "(1.0 + a * (1.0 - s))", "(1.0 - a * (1.0 - s))"): "gradient of input 0",
    ("swiglu", "tl.store(dup + places, g * a * s, mask)", ""): "gradient of input 1",
    ("swiglu", "return dgate, dup", "return dup, dgate"): "gradient of input 0",
    ("swiglu", "g = tl.load(above + places, mask)", "g = 1.0"): "gradient of input 0",
    (
        "cross_entropy",
        "tl.load(gradients + places, mask) * tl.load(above)",
        "tl.load(gradients + places, mask)",
    ): ("gradient of input 0"),
    (
        "cross_entropy",
        "tl.where(columns == target, 1.0, 0.0)) / rows",
        "tl.where(columns == target, 1.0, 0.0))",
    ): ("gradient of input 0"),
    ("rms_norm", "g - v * scale * scale * along", "g - v * scale * along"): "gradient of input 0",
    ("rms_norm", "total += above * v * scale", "total = above * v * scale"): "gradient of weight",
    ("rms_norm", "g = above * w", "g = above"): "gradient of input 0",
}
_ATTENTION = """
# backward: q, k, v
N = 43
D = 16

class Model(nn.Module):
    def forward(self, q, k, v):
        scores = q.float() @ k.float().mT * 0.25
        causal = torch.ones(N, N, dtype=torch.bool, device=q.device).tril()
        return (torch.softmax(scores.masked_fill(~causal, -float("inf")), -1) @ v.float()).to(q.dtype)

def get_inputs():
    return [torch.randn(2, N, D).to(torch.float32) for _ in range(3)]

def get_init_inputs():
    return []
"""
_SAMPLED = [case for number, case in enumerate(_WRONG) if number % 4 == 1]
_HONEST_SAMPLED = ("softmax_scaled", "swiglu")


def _request(name: str, kernel: str) -> JudgeRequest:
    return JudgeRequest(problem=_SUITE[name], candidate=Candidate.from_source(kernel), seed=11)


def _wrong(case: tuple[str, str, str]) -> JudgeRequest:
    name, right, wrong = case
    assert _KERNELS[name].count(right) == 1, case
    return _request(name, _KERNELS[name].replace(right, wrong))


def _assert_refused(case: tuple[str, str, str], evaluation: Evaluation) -> None:
    assert evaluation.verdict is Verdict.WRONG, (case, evaluation.feedback)
    assert _WRONG[case] in evaluation.feedback, (case, evaluation.feedback)


def _assert_told_apart(gym: PooledGym, honest: Sequence[str], wrong: Sequence[tuple[str, str, str]]) -> None:
    requests = [*(_request(name, _KERNELS[name]) for name in honest), *map(_wrong, wrong)]
    evaluations = gym.judge(requests)
    for name, evaluation in zip(honest, evaluations, strict=False):
        assert evaluation.correct, (name, evaluation.feedback)
        assert evaluation.predicted_speedup is not None
    for case, evaluation in zip(wrong, evaluations[len(honest) :], strict=True):
        _assert_refused(case, evaluation)


def test_a_sample_of_honest_kernels_is_accepted_and_of_wrong_ones_none_is(gym: PooledGym) -> None:
    _assert_told_apart(gym, _HONEST_SAMPLED, _SAMPLED)


@pytest.mark.exhaustive
def test_every_other_honest_kernel_is_accepted_and_each_fault_of_the_wrong_ones_named(gym: PooledGym) -> None:
    honest = sorted(_KERNELS.keys() - set(_HONEST_SAMPLED))
    _assert_told_apart(gym, honest, [case for case in _WRONG if case not in _SAMPLED])


def test_kernels_outside_of_autograd_are_told_where_to_put_them(gym: PooledGym) -> None:
    kernel = _KERNELS["swiglu"].replace("Function.apply(gate, up)", "Function.forward(Context(), gate, up)")
    kernel += "\n\nclass Context:\n    def save_for_backward(self, *tensors):\n        pass\n"
    [evaluation] = gym.judge([_request("swiglu", kernel)])
    assert evaluation.verdict is Verdict.CRASHED
    assert "torch.autograd.Function" in evaluation.feedback


def test_a_backward_pass_may_name_the_gpu(gym: PooledGym) -> None:
    memory = "dgate, dup = torch.empty_like(gate), torch.empty_like(up)"
    named = "dgate, dup = (torch.empty(gate.shape, device='cuda') for _ in range(2)); assert above.is_cuda"
    assert memory in _KERNELS["swiglu"]
    [evaluation] = gym.judge([_request("swiglu", _KERNELS["swiglu"].replace(memory, named))])
    assert evaluation.correct, evaluation.feedback


def _as_attention_kernels_do(
    given: Sequence[torch.Tensor],
    above: torch.Tensor,
    share: float,
    *,
    summed_as_stored: bool = False,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.matmul,
) -> list[torch.Tensor]:
    """The output and the gradients. What is kept is the output, in its own precision, and the logarithm of
    each row's sum, in float32. `share` of a row's sum of gradients is subtracted."""
    q, k, v, do = (one.float() for one in (*given, above))
    causal = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    scores = (product(q, k.mT) * 0.25).masked_fill(~causal, -float("inf"))
    p = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    output = product(p, v).to(given[0].dtype)
    terms = output.float() * do
    if summed_as_stored:
        terms = terms.to(output.dtype)
    while terms.shape[-1] > 1:
        terms = terms[..., ::2] + terms[..., 1::2]
    delta = terms.float()
    ds = (p * (product(do, v.mT) - share * delta) * 0.25).to(output.dtype).float()
    gradients = (product(ds, k), product(ds.mT, q), product(p.mT, do))
    return [output, *(one.to(output.dtype) for one in gradients)]


def _in_tf32(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product as tensor cores make it: of each operand the last 13 bits are cut off."""
    operands = (one.contiguous().view(torch.int32) for one in (left, right))
    left, right = (one.bitwise_and(-(1 << 13)).view(torch.float32) for one in operands)
    return left @ right


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_attention_may_take_the_sum_of_a_row_from_its_stored_output(dtype: str) -> None:
    """Where one key has all of a row, that sum is subtracted from its equal, and rounding is left."""
    text = HEAD + _ATTENTION.replace("float32", dtype)
    reference = Reference(parse_problem(text, id="test/attention", suite="test"), {})
    for seed in range(2):
        trial = reference.exactly(reference.trial(seed, "smooth"))
        *given, (above,) = reference.inputs_of(trial)
        honest, without, nearly = (
            value_fault(_as_attention_kernels_do(given, above, share), trial.expected, compare_values)
            for share in (1.0, 0.0, 0.99)
        )
        gradients = _as_attention_kernels_do(given, above, 1.0, summed_as_stored=True)
        assert not honest, (seed, honest)
        assert not value_fault(gradients, trial.expected, compare_values)
        assert without and nearly, (seed, without, nearly)


def test_a_row_of_gradients_may_stray_as_tf32_products_do() -> None:
    """Both parts of a difference are made of other products, so it strays although its terms cancel."""
    reference = Reference(parse_problem(HEAD + _ATTENTION, id="test/attention", suite="test"), {}, tf32=True)
    for seed in range(6):
        trial = reference.exactly(reference.trial(seed, ("smooth", "normal")[seed % 2]))
        *given, (above,) = reference.inputs_of(trial)
        honest, without, nearly = (
            value_fault(made, trial.expected, compare_values)
            for made in (
                _as_attention_kernels_do(given, above, share, product=_in_tf32) for share in (1.0, 0.0, 0.9)
            )
        )
        assert not honest, (seed, honest)
        assert without and nearly, (seed, without, nearly)


def test_of_equal_maxima_either_may_have_the_gradient() -> None:
    """So may either side of a limit; torch halves the gradient."""
    text = """
# backward: x
class Model(nn.Module):
    def forward(self, x):
        return x.unflatten(1, (-1, 4)).amax(-1)

def get_inputs():
    x = torch.randn(40, 64)
    x[:, 1::8] = x[:, ::8]
    return [x]

def get_init_inputs():
    return []
"""
    reference = Reference(parse_problem(HEAD + text, id="test/maxima", suite="test"), {})
    trial = reference.exactly(reference.trial(3, "own"))
    x, (above,) = reference.inputs_of(trial)
    blocks = x.unflatten(1, (-1, 4))
    first, last, second = blocks.argmax(-1), 3 - blocks.flip(-1).argmax(-1), blocks.topk(2)[1][..., 1]
    for place, is_right in ((first, True), (last, True), (second, False), (torch.zeros_like(first), False)):
        gradient = (torch.nn.functional.one_hot(place, 4) * above[..., None]).flatten(1)
        assert not torch.allclose(gradient.double(), trial.expected[1].value)
        fault = value_fault([blocks.amax(-1), gradient], trial.expected, compare_values)
        assert (fault is None) == is_right, fault


def test_steps_of_a_gradient_may_cancel_inside_an_operator() -> None:
    """A slope of 1 - tanh² is all rounding where tanh is nearly one, and what follows makes it large."""
    text = """
# backward: x
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x[0], approximate="tanh") * x[1]

def get_inputs():
    return [torch.randn(2, 40, 64) * torch.tensor([2.0, 20.0])[:, None, None] - 3]

def get_init_inputs():
    return []
"""
    reference = Reference(parse_problem(HEAD + text, id="test/gelu", suite="test"), {})
    for seed in range(3):
        trial = reference.trial(seed, "own")
        (a, b), (above,) = reference.inputs_of(trial)

        def made(factor: float, ulps: int, a=a, b=b, above=above) -> list[torch.Tensor]:
            e = torch.exp(2 * 0.79788456 * a * (1 + 0.044715 * a * a))
            tanh = 1 - 2 / (1 + e) * (1 - (1 + e != 1) * ulps * 2.0**-23)
            slope = 0.5 * a * (1 - tanh * tanh) * (0.79788456 + factor * a * a) + 0.5 * (1 + tanh)
            return [0.5 * a * (1 + tanh) * b, torch.stack([slope * b * above, 0.5 * a * (1 + tanh) * above])]

        honest, wrong = made(0.1070322243, 2), made(0.109, 0)
        assert value_fault(honest, trial.expected, compare_values)
        exact = reference.exactly(trial).expected
        assert not value_fault(honest, exact, compare_values)
        assert value_fault(wrong, exact, compare_values)


def test_gradients_of_complex_numbers_are_computed_in_double_precision() -> None:
    text = """
# backward: x
class Model(nn.Module):
    def forward(self, x, y):
        return x * y

def get_inputs():
    return [torch.randn(5, 6, dtype=torch.complex64) for _ in range(2)]

def get_init_inputs():
    return []
"""
    reference = Reference(parse_problem(HEAD + text, id="test/complex", suite="test"), {})
    trial = reference.trial(1, "own")
    _, y, (above,) = reference.inputs_of(trial)
    gradient = trial.expected[1]
    assert above.imag.any()
    assert (gradient.dtype, gradient.value.dtype) == ("complex64", torch.complex128)
    assert gradient.value.equal(above.to(torch.complex128) * y.to(torch.complex128).conj())


def test_our_suite_asks_for_gradients_of_at_least_twelve_problems() -> None:
    assert len(_SUITE) >= 12
    assert all(wanted_gradients(problem.source) for problem in _SUITE.values())


@pytest.mark.parametrize("name", _SUITE)
def test_each_gradient_depends_on_the_inputs_and_on_the_gradient_above(name: str) -> None:
    problem = _SUITE[name]
    reference = Reference(problem, problem.cpu_constants)
    one, other = (reference.trial(seed, "own") for seed in (1, 2))
    assert len(one.expected) >= 2
    assert all(not a.value.equal(b.value) for a, b in zip(one.expected, other.expected, strict=True))


def test_the_forward_pass_alone_is_another_problem() -> None:
    alone = forward_alone(_SUITE["swiglu"])
    assert not wanted_gradients(alone.source)
    assert alone.sha256 != _SUITE["swiglu"].sha256
    assert len(Reference(alone, alone.cpu_constants).trial(1, "own").expected) == 1


def test_an_unknown_kind_of_gradient_is_the_problems_mistake() -> None:
    text = _SUITE["swiglu"].source.replace("# backward: inputs", "# backward: door")
    problem = parse_problem(HEAD + text, id="test/backward", suite="test")
    with pytest.raises(NotAProblem, match="inputs, parameters, gate, up"):
        Reference(problem, {})


def test_sizes_that_do_not_fit_together_are_none_of_a_problem_with_gradients() -> None:
    text = """
# backward: inputs
COLS = 72
GROUP = 24

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.view(-1, GROUP))

def get_inputs():
    return [torch.randn(7, COLS)]

def get_init_inputs():
    return []
"""
    problem = parse_problem(HEAD + text, id="test/group", suite="test")
    assert tensor_bytes(inputs_at(problem, {"GROUP": 24})) == 2 * 4 * 7 * 72
    assert inputs_at(problem, {"GROUP": 1000}) is None
