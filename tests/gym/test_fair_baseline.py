"""Planted kernels on a GPU: each is compared at its own precision, and a switch of it earns nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, NotJudged, Problem, fair_kinds
from kernel_core.store import Store

from .planted_products import PLANTED, PRECISION, PROBLEM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
_KERNELBENCH = os.environ.get("KERNELBENCH_ROOT", "")
_ACCEPTED = ("ieee", "tf32x3", "tf32")
"""Planted kernels that pass on a GPU under `measured`: bfloat16 is refused, and float16 need not be."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("baselines"))


@pytest.fixture(scope="module")
def fair_gym(store: Store) -> Iterator[PooledGym]:
    with open_gym(GymConfig(device="cuda", workers=1, in_flight=8), cache=store) as opened:
        yield opened


@pytest.fixture(scope="module")
def planted(fair_gym: PooledGym) -> dict[str, Evaluation]:
    return dict(
        zip(PLANTED, _judged(fair_gym, [_request(source) for source in PLANTED.values()]), strict=True)
    )


def _request(source: str, problem: Problem = PROBLEM) -> JudgeRequest:
    return JudgeRequest(problem=problem, candidate=Candidate.from_source(source))


def _judged(gym: PooledGym, requests: list[JudgeRequest]) -> list[Evaluation]:
    outcomes = gym.judge(requests)
    assert all(isinstance(one, Evaluation) for one in outcomes), outcomes
    return [one for one in outcomes if isinstance(one, Evaluation)]


@pytest.mark.parametrize("name", _ACCEPTED)
def test_each_planted_kernel_has_the_baseline_of_its_precision(
    name: str, planted: dict[str, Evaluation]
) -> None:
    evaluation = planted[name]
    assert evaluation.correct, evaluation.feedback
    assert evaluation.product_precision == PRECISION[name]
    assert {row.kind for row in evaluation.baselines} == {"eager", "eager_tf32", "compile", "compile_tf32"}
    assert not [row.failure for row in evaluation.baselines if row.failure]
    assert evaluation.baseline in fair_kinds(evaluation.product_precision)
    assert evaluation.speedup == pytest.approx(evaluation.speedup_over("fair"))
    assert "measured" in evaluation.tolerances_passed
    assert ("strict" in evaluation.tolerances_passed) == (name != "tf32")
    assert any(one.rule == "tf32" for one in evaluation.findings) == (name == "tf32")


def test_half_precision_is_never_taken_for_more(planted: dict[str, Evaluation]) -> None:
    for name in ("bfloat16", "float16", "rounded"):
        evaluation = planted[name]
        assert not evaluation.correct or evaluation.product_precision == "half", (name, evaluation)


def test_a_switch_of_precision_earns_no_speedup(planted: dict[str, Evaluation]) -> None:
    """The product of TF32 is several times as fast as eager's in float32, and no faster than TF32's."""
    switched = planted["tf32"]
    over_eager, fair = switched.speedup_over("eager"), switched.speedup
    assert over_eager is not None and fair is not None
    assert over_eager > 1.5 * fair
    assert fair < 1.2


def test_kept_baselines_are_not_measured_again(
    planted: dict[str, Evaluation], fair_gym: PooledGym, store: Store
) -> None:
    kept = [name for name in store.names() if name.startswith("baselines")]
    assert kept
    request = _request(PLANTED["tf32"]).model_copy(update={"rejudge": True})
    [again] = _judged(fair_gym, [request])
    assert again.baselines == planted["tf32"].baselines
    assert again.phases_s.get("baselines", 0.0) < 0.5


def test_what_torch_compile_refuses_is_a_row_with_its_reason(fair_gym: PooledGym) -> None:
    """What the compiler traces has shapes that do not fit, as a fault of its own may make them."""
    text = PROBLEM.source.replace(
        "        return torch.relu(a @ b)",
        "        if torch.compiler.is_compiling():\n"
        "            return torch.relu(a @ b[:5])\n"
        "        return torch.relu(a @ b)",
    )
    problem = parse_problem(text, id="planted/refused", suite="planted")
    [evaluation] = _judged(fair_gym, [_request(PLANTED["ieee"], problem)])
    rows = {row.kind: row for row in evaluation.baselines}
    assert rows["compile"].timing is None and rows["compile"].failure
    assert evaluation.baseline == "eager" and evaluation.speedup is not None


def test_a_reference_that_fails_on_the_device_stops_no_other(fair_gym: PooledGym) -> None:
    text = PROBLEM.source.replace("torch.relu(a @ b)", "torch.histc(a.half(), 10)")
    broken = parse_problem(text, id="planted/histc", suite="planted")
    first, second = fair_gym.judge([_request(PLANTED["ieee"], broken), _request(PLANTED["ieee"])])
    assert isinstance(first, NotJudged) and first.reason
    assert isinstance(second, Evaluation) and second.correct


@pytest.fixture(scope="module")
def accepted_by_kernelbench(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    if not _KERNELBENCH:
        pytest.skip("KERNELBENCH_ROOT names no checkout of KernelBench")
    folders = [tmp_path_factory.mktemp(name) for name in PLANTED]
    with ThreadPoolExecutor() as threads:
        accepted = threads.map(_evaluator_accepts, PLANTED.values(), folders)
        return dict(zip(PLANTED, accepted, strict=True))


@pytest.mark.parametrize("rules", ["dojo", "kernelbench"])
def test_the_fields_tolerance_agrees_with_kernelbenchs_evaluator(
    rules: str, accepted_by_kernelbench: dict[str, bool]
) -> None:
    config = GymConfig.model_validate(
        {"device": "cuda", "workers": 1, "rules": rules, "tolerance": "field", "baseline": "eager"}
    )
    with open_gym(config) as gym:
        ours = [one.correct for one in _judged(gym, [_request(source) for source in PLANTED.values()])]
    assert dict(zip(PLANTED, ours, strict=True)) == accepted_by_kernelbench


def _evaluator_accepts(source: str, folder: Path) -> bool:
    """The verdict of KernelBench's evaluator, in a process of its own as it asks for."""
    (folder / "reference.py").write_text(PROBLEM.source)
    (folder / "candidate.py").write_text(source)
    script = (
        "import sys, torch, pathlib, types\n"
        "for name in ('openai', 'litellm', 'dotenv', 'pydra', 'modal'):\n"  # of no use to the evaluator
        "    stub = sys.modules.setdefault(name, types.ModuleType(name))\n"
        "    stub.OpenAI, stub.completion, stub.load_dotenv = object, None, lambda *a, **k: None\n"
        "from kernelbench.eval import eval_kernel_against_ref\n"
        "reference, candidate = (pathlib.Path(name).read_text() for name in sys.argv[1:])\n"
        "result = eval_kernel_against_ref(reference, candidate, num_correct_trials=5,\n"
        "    measure_performance=False, device=torch.device('cuda:0'), backend='triton')\n"
        "print('ACCEPTED' if result is not None and result.correctness else 'REFUSED')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "reference.py"), str(folder / "candidate.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(_KERNELBENCH) / "src"), *sys.path))},
        check=False,
    )
    words = done.stdout.split()
    assert "ACCEPTED" in words or "REFUSED" in words, done.stderr[-2000:]
    return "ACCEPTED" in words
