"""What tests of learning share: the real judge, real exemplars, and a policy that was taught a little."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_core.config import (
    ColdStartConfig,
    CurriculumConfig,
    GymConfig,
    IngestConfig,
    PolicyConfig,
    ProblemsConfig,
    RewardWeights,
    RolloutConfig,
    SamplingConfig,
    StageConfig,
    TrainConfig,
)
from kernel_core.corpus.generator_source import generated_exemplars
from kernel_core.corpus.registry import SOURCES_FILE, read_registry
from kernel_core.learn.cold_start.dataset import build_conversations
from kernel_core.learn.cold_start.sft import cold_start, starting_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Exemplar
from kernel_core.store import Store

POLICY = PolicyConfig(
    model="new", hidden_size=96, num_layers=1, num_heads=2, vocab_size=700, max_context=1024
)
ROLLOUT = RolloutConfig(
    turns=2,
    exemplars=0,
    prompt_budget=700,
    sampling=SamplingConfig(temperature=0.7, max_new_tokens=200, batch_size=16),
)


@pytest.fixture(scope="session")
def gym(quick_gym):
    return quick_gym


@pytest.fixture(scope="session")
def exemplars():
    """Six problems of the generator with all their kernels. Their own sizes are those of a CPU: the judge has
    no larger ones to run, which takes most of its time."""
    source = read_registry(SOURCES_FILE).sources["generator"]
    drawn = generated_exemplars(source, IngestConfig(generator_rows=6, seed=3))
    return [_at_cpu_sizes(exemplar) for exemplar in drawn]


def _at_cpu_sizes(exemplar: Exemplar) -> Exemplar:
    text = f"# cpu: {exemplar.cpu_sizes}\n{exemplar.reference_code}"
    problem = parse_problem(text, id=exemplar.id, suite=exemplar.source)
    small = resize(problem, problem.cpu_constants)
    return exemplar.model_copy(update={"reference_code": small.source})


@pytest.fixture(scope="session")
def problem_folder(exemplars, tmp_path_factory) -> Path:
    """The first two of those problems as files."""
    folder = tmp_path_factory.mktemp("problems")
    references = {one.reference_hash: one for one in exemplars}
    for number, one in enumerate(list(references.values())[:2]):
        text = f"# cpu: {one.cpu_sizes}\n# family: {one.family}\n{one.reference_code}"
        (folder / f"problem_{number}.py").write_text(text)
    return folder


@pytest.fixture(scope="session")
def taught(exemplars, gym, tmp_path_factory) -> Path:
    """The folder of a tiny policy that half knows the kernels of two problems by heart."""
    references = list(dict.fromkeys(one.reference_hash for one in exemplars))[:2]
    known = [one for one in exemplars if one.reference_hash in references]
    config = ColdStartConfig(
        steps=130,
        batch_tokens=1500,
        lr=6e-3,
        warmup=5,
        conversations=12,
        repair_share=0.25,
        mistake_share=0.3,
    )
    conversations = build_conversations(known, gym, config, ROLLOUT)
    store = Store(tmp_path_factory.mktemp("taught"))
    cold_start(starting_policy(POLICY, conversations, seed=0), conversations, config, store)
    return Path(store.root)


@pytest.fixture
def policy(taught) -> TorchPolicy:
    return TorchPolicy.load(str(taught), POLICY)


@pytest.fixture(scope="session")
def train_config(problem_folder) -> TrainConfig:
    """A few small steps on the two problems; every stage is passed through as fast as it can be."""
    weights = RewardWeights(format=0.2, compile=0.3, correct=1.0, speed=0.5)
    stages = (
        StageConfig(name="format", weights=weights, promote_metric="format_rate", promote_at=0.0, window=1),
        StageConfig(name="speed", weights=weights, promote_metric="fast_1", promote_at=1.0),
    )
    return TrainConfig(
        steps=3,
        problems_per_step=2,
        group_size=4,
        lr=3e-4,
        minibatch_tokens=4096,
        keep_checkpoints=2,
        problems=ProblemsConfig(suite=str(problem_folder), audited=False),
        policy=POLICY,
        rollout=ROLLOUT,
        curriculum=CurriculumConfig(stages=stages, probe_every=2, probe_problems=2),
        gym=GymConfig(workers=2, trials=1, compile_gate=False),
    )


@pytest.fixture(scope="session")
def brief_config(train_config) -> TrainConfig:
    """Steps of four answers that are cut off after a few tokens: the loop is shown, and no judge works."""
    sampling = train_config.rollout.sampling.model_copy(update={"max_new_tokens": 8})
    rollout = train_config.rollout.model_copy(update={"turns": 1, "sampling": sampling})
    return train_config.model_copy(update={"group_size": 2, "rollout": rollout})
