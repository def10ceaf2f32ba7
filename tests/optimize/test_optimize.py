"""`dojo optimize`: what it says of mistakes, what a dry run prints, and a module made faster on a CPU."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from flows.cli import run
from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.optimize.authors import AuthoredCandidate, generator
from kernel_core.optimize.profile import profile
from kernel_core.optimize.stages import confirmed, find_parts, parts_of, profiled, read_confirmed, whole_model
from kernel_core.optimize.target import load_target
from kernel_core.records import Candidate, Verdict
from kernel_core.store import Store

MODULES = Path(__file__).with_name("small_modules.py")


@pytest.fixture(scope="module")
def gym():
    with open_gym(GymConfig(workers=1)) as opened:
        yield opened


def test_a_target_that_is_no_module_is_one_line(tmp_path, capsys):
    file = tmp_path / "number.py"
    file.write_text("def build():\n    return 3, 4\n")
    assert run(["optimize", f"{file}:build", "--root", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("dojo:") and "nn.Module" in error
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_prints_what_would_be_tried(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["optimize", f"{MODULES}:block", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "region: silu, mul" in printed and "RMSNorm_" in printed and "upper bounds" in printed


def _wrong_and_lucky(problem):
    """An author whose kernels are wrong: the generator's, with a sign changed."""
    return [
        AuthoredCandidate(
            author="wrong",
            candidate=Candidate.from_source(entry.candidate.source.replace("tl.rsqrt", "-tl.rsqrt")),
            is_of_one_size=entry.is_of_one_size,
        )
        for entry in generator(problem)
    ]


@pytest.mark.exhaustive
def test_a_norm_gets_a_kernel_and_a_wrong_author_gets_none(tmp_path):
    spec, store = f"{MODULES}:norm", Store(tmp_path / "optimize")
    target = load_target(spec)
    rows = profiled(target, "cpu", "H200", store)
    parts = parts_of(target, rows, store).parts
    with open_gym(GymConfig(workers=1)) as gym:
        (outcome,) = confirmed(parts, [_wrong_and_lucky, generator], gym, "predicted", 0, store)
        assert confirmed(parts, [], gym, "predicted", 0, store) == [outcome]  # read, not searched again
    assert outcome.author == "generator, library products" and outcome.saved_ms > 0
    assert outcome.selected.verdicts[Verdict.WRONG] == 1 and outcome.lost_sizes == ()
    whole = whole_model(target, spec, rows, read_confirmed(store), "cpu", store)
    assert whole.error is not None and whole.error < 1e-5
    assert whole.predicted_kernels_ms < whole.predicted_eager_ms and whole.kernels_ms is None
    _import_alone(tmp_path / "optimize", target)


def _import_alone(folder: Path, target) -> None:
    """The library is a package of its own that installs and uninstalls."""
    sys.path.insert(0, str(folder))
    try:
        library = importlib.import_module("library")
        assert library.install(target.module) == [""] and library.uninstall(target.module) == [""]
    finally:
        sys.path.remove(str(folder))
    (entry,) = json.loads((folder / "library" / "contracts.json").read_text()).values()
    assert entry["evidence"][0]["verdict"] == "correct" and entry["speed_kind"] == "predicted"
    assert "RMSNorm" in (folder / "library" / "index.html").read_text()


@pytest.mark.exhaustive
def test_a_kernel_that_spoils_the_whole_or_never_runs_is_taken_out(tmp_path):
    spec, store = f"{MODULES}:norm", Store(tmp_path / "optimize")
    target = load_target(spec)
    rows = profiled(target, "cpu", "H200", store)
    parts = parts_of(target, rows, store).parts
    with open_gym(GymConfig(workers=1)) as gym:
        (outcome,) = confirmed(parts, [generator], gym, "predicted", 0, store)
    data = json.loads(outcome.model_dump_json())
    candidate = data["selected"]["winner"]["ranked"]["candidate"]
    candidate["source"] = candidate["source"].replace("tl.rsqrt", "-tl.rsqrt")
    spoiled = type(outcome).model_validate(data)
    whole = whole_model(target, spec, rows, [spoiled], "cpu", store)
    assert whole.places == {} and "differ by 2" in next(iter(whole.taken_out.values()))
    store.remove("whole.json")
    contract = outcome.part.contract.model_copy(update={"free": {}, "shapes": ((7, 7, 7),)})
    elsewhere = outcome.model_copy(update={"part": outcome.part.model_copy(update={"contract": contract})})
    whole = whole_model(target, spec, rows, [elsewhere], "cpu", store)
    assert whole.places == {} and "does not fit" in next(iter(whole.taken_out.values()))


def test_kernels_with_constant_sizes_are_correct(gym):
    target = load_target(f"{MODULES}:norm")
    (part,) = find_parts(target, profile(target, "cpu")).parts
    plain, constant = generator(part.problem)
    assert constant.is_of_one_size and not plain.is_of_one_size
    assert "n_rows: tl.constexpr, n_cols: tl.constexpr" in constant.candidate.source
    [evaluation] = gym.judge([JudgeRequest(problem=part.problem, candidate=constant.candidate, seed=1)])
    assert evaluation.correct, evaluation.feedback


@pytest.mark.exhaustive
def test_a_policy_competes_with_the_generator_in_one_command(tmp_path):
    spec = f"{MODULES}:norm"
    target = load_target(spec)
    (part,) = find_parts(target, profile(target, "cpu")).parts
    written = "\n".join(
        line
        for line in generator(part.problem)[0].candidate.source.splitlines()
        if not line.strip().startswith("#")
    )
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([f"```python\n{written}\n```"]))
    words = ["policy.kind=scripted", f"policy.model={script}", "n=1", "rollout.exemplars=0"]
    assert run(["optimize", spec, *words, "--run", "both", "--root", str(tmp_path)]) == 0
    (outcome,) = read_confirmed(Store(tmp_path / "both" / "optimize"))
    assert outcome.author.startswith("best of 1") and outcome.selected.num_candidates == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_times_the_whole_against_eager_and_compiled(tmp_path):
    spec, store = f"{MODULES}:block", Store(tmp_path / "optimize")
    target = load_target(spec, "cuda")
    rows = profiled(target, "cuda", "H200", store)
    parts = parts_of(target, rows, store).parts
    with open_gym(GymConfig(device="cuda", workers=1)) as gym:
        confirmed(parts, [generator], gym, "measured", 0, store)
    whole = whole_model(target, spec, rows, read_confirmed(store), "cuda", store)
    assert whole.eager_ms > 0 and whole.kernels_ms > 0 and whole.predicted_kernels_ms is None
    assert whole.compiled_ms > 0 and whole.compiled_kernels_ms > 0 and whole.fastest
