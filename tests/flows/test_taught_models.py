"""A Hugging Face model that was taught on chats is the one that RL goes on with."""

import json

import pytest
import torch

from flows.cold_start import cold_start
from flows.evaluate import evaluate
from flows.train import train
from kernel_core.config import (
    ColdStartConfig,
    CurriculumConfig,
    EvaluateConfig,
    GymConfig,
    IngestConfig,
    PolicyConfig,
    ProblemsConfig,
    RolloutConfig,
    SamplingConfig,
    TrainConfig,
)
from kernel_core.errors import ConfigError
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run

INGEST = IngestConfig(generator_rows=12, decontaminate_against=())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder as transformers leaves it: a small Qwen3 with random weights and a tokenizer."""
    small = PolicyConfig(
        model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=400, max_context=512
    )
    policy = new_policy(small, ["import triton\nclass ModelNew:\n    pass\n"] * 3, seed=0)
    folder = tmp_path_factory.mktemp("qwen3")
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def asked(prefect_api, model, tmp_path_factory):
    """A training of that model on a file of chats, as small as it gets."""
    chats = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"kernel {i}?"},
                {"role": "assistant", "content": f"it is {i}"},
            ]
        }
        for i in range(8)
    ]
    chats.write_text("\n".join(map(json.dumps, lines)))
    with judges_kept():
        yield TrainConfig(
            steps=1,
            problems_per_step=1,
            group_size=2,
            policy=PolicyConfig(model=model, max_context=512),
            rollout=RolloutConfig(
                turns=1, exemplars=0, prompt_budget=400, sampling=SamplingConfig(max_new_tokens=16)
            ),
            cold_start=ColdStartConfig(data=(str(chats),), steps=3, batch_tokens=512, warmup=1),
            curriculum=CurriculumConfig(probe_problems=1),
            gym=GymConfig(workers=1, trials=1),
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One root for both runs: judges that stay open are those of a root."""
    return str(tmp_path_factory.mktemp("runs"))


def without_chats(config):
    return config.model_copy(update={"cold_start": ColdStartConfig()})


def weights_of(folder):
    policy = TorchPolicy.load(folder, PolicyConfig(max_context=512))
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def assert_rl_began_with_what_was_taught(root, name, model):
    store = Run(root, name).store
    taught, begun = weights_of(store.path("cold_start")), weights_of(store.path("checkpoints/step-000000"))
    assert torch.equal(begun, taught)
    assert not torch.equal(taught, weights_of(model))


@pytest.mark.exhaustive
def test_training_with_chats_teaches_first_and_begins_there(asked, model, root):
    train(asked, run="once", root=root, ingest=INGEST)
    assert [record.stage for record in Run(root, "once").stages()][-2:] == ["cold-start", "train"]
    assert_rl_began_with_what_was_taught(root, "once", model)


@pytest.mark.exhaustive
def test_training_goes_on_from_a_cold_start_that_the_run_has(asked, model, root):
    cold_start(asked, run="two", root=root, ingest=INGEST)
    train(without_chats(asked), run="two", root=root, ingest=INGEST)
    assert_rl_began_with_what_was_taught(root, "two", model)
    assert Run(root, "two").stage("train").inputs["cold_start"] == Run(root, "two").stage("cold-start").output

    problems = ProblemsConfig(split="held_out", limit=1, seed=1000)
    score = EvaluateConfig(
        policy=asked.policy,
        problems=problems,
        rollout=asked.rollout,
        gym=asked.gym,
        samples_per_problem=1,
        k=(1,),
    )
    evaluate(score, run="two", root=root)
    card = load_scorecard(Run(root, "two").store.child("evaluate"))
    assert card.conditions.policy_version.startswith("cold-start-")

    other = asked.policy.model_copy(update={"model": "shipped"})
    with pytest.raises(ConfigError, match=r"cold start that was begun with policy\.model = .*now 'shipped'"):
        train(without_chats(asked).model_copy(update={"policy": other}), run="two", root=root, ingest=INGEST)
