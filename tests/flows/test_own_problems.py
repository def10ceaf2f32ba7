"""RL on a folder of a user's problems alone, and the best kernel of each."""

import pandas as pd
import pytest

from flows.presets import build_parameters, preset
from flows.train import train
from kernel_core.config import TrainConfig
from kernel_core.config.base import laid_over
from kernel_core.errors import ConfigError
from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.evaluation.best_of_training import best_of_training
from kernel_core.evaluation.winners import FRESH_DRAWS
from kernel_core.learn.methods import check_settings
from kernel_core.learn.problem_sampler import Practice
from kernel_core.parquet_rows import packed
from kernel_core.problems.generate import generate
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.naming import BEST_KERNELS
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve problems as a user's files."""
    folder = tmp_path_factory.mktemp("mine")
    for number, made in enumerate(generate("train", 12, 5)):
        sizes = ", ".join(f"{name}={value}" for name, value in made.problem.cpu_constants.items())
        text = f"# cpu: {sizes}\n# family: {made.problem.family}\n{made.problem.source}"
        (folder / f"problem_{number}.py").write_text(text)
    return folder


def of_the_preset(folder, **changes):
    """The preset `own-problems` on a folder, as small as it gets."""
    small = {
        "steps": 2,
        "group_size": 6,
        "problems": {"suite": str(folder), "audited": False},
        "gym": {"workers": 2, "trials": 1, "compile_gate": False},
        "rollout": {"turns": 1, "exemplars": 0},
        "curriculum": {"probe_problems": 1},
    }
    settings = laid_over(preset("train", "own-problems")["config"], laid_over(small, changes))
    return build_parameters("train", {"config": settings})["config"]


def test_every_problem_of_the_folder_is_practised_and_none_is_kept_for_probes(folder):
    practice = Practice.open(of_the_preset(folder))
    assert len(practice.parts[0].fixed) == len(practice.parts[0].probes) == 12
    usual = Practice.open(of_the_preset(folder, problems={"split": "train"}))
    assert len(usual.parts[0].fixed) < 12


@pytest.mark.exhaustive
def test_the_best_kernel_of_each_problem_is_judged_again_and_kept(prefect_api, folder, tmp_path):
    two = tmp_path / "two"
    two.mkdir()
    for name in ("problem_0.py", "problem_1.py"):
        (two / name).write_text((folder / name).read_text())
    config, run = of_the_preset(two, problems_per_step=2), Run(str(tmp_path / "runs"), "mine")
    with judges_kept():
        train(config, run=run.name, root=run.root)
        kept = run.store.child(BEST_KERNELS)
        selection = load_selection(kept)
        assert len(selection.problems) == 2 and selection.winners
        written = pd.concat(map(pd.read_parquet, sorted((tmp_path / "runs/mine/evaluations").iterdir())))
        for selected in selection.winners:
            mine = written[written.problem_id == selected.problem_id]
            assert selected.num_candidates == len(mine) == 12
            assert selected.winner.ranked.candidate.source in set(mine[mine.verdict == "correct"].code)
            assert len(selected.winner.again) == FRESH_DRAWS
            kernel = kept.read(f"winners/{selected.problem_id}/kernel.py").decode()
            assert kernel == selected.winner.ranked.candidate.source
        before = run.stages()
        train(config, run=run.name, root=run.root)
        assert run.stages() == before
        train(config.model_copy(update={"steps": 3}), run=run.name, root=run.root)
    assert {selected.num_candidates for selected in load_selection(kept).problems} == {18}


def test_the_newest_of_the_policies_is_named_and_not_the_last_by_letters(folder, tmp_path, quick_gym):
    training, kept = Store(str(tmp_path / "training")), Store(str(tmp_path / "kept"))
    rest = {"speedup": None, "predicted_speedup": None, "code": "", "finish_reason": "stop"}
    for step in (9, 10):
        row = {"problem_id": f"{folder.name}/problem_0", "sample": 0, "turn": 0, "verdict": "wrong", **rest}
        rows = packed([row | {"policy_version": f"run@{step}"}])
        training.write(f"evaluations/step-{step:06d}.parquet", rows)
    selection = best_of_training(of_the_preset(folder), quick_gym, training, kept)
    assert selection.policy_version == "run@10"
    assert sum(selected.num_candidates for selected in selection.problems) == 2


def test_problems_that_a_generator_draws_once_have_no_best_kernel():
    with pytest.raises(ConfigError, match=r"problems\.suite=FOLDER"):
        check_settings(TrainConfig(best_kernels=True))
