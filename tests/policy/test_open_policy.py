"""Which policy a config opens, and what it says when there is none."""

import json

import pytest

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, NotFound
from kernel_core.policy import open_policy
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.policy.tiny_model import new_policy

TINY = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 300}


def test_a_new_policy_needs_a_snapshot_first():
    with pytest.raises(ConfigError, match="dojo train"):
        open_policy(PolicyConfig(model="new"))


def test_the_shipped_policy_opens_and_writes_something():
    policy = open_policy(PolicyConfig(model="shipped"))
    [sample] = policy.sample(
        [[{"role": "user", "content": "Write a kernel."}]], temperature=1.0, max_new_tokens=8, seed=0
    )
    assert policy.version == "cold-start-b05f0fe4"
    assert sample.token_ids is not None and 1 <= len(sample.token_ids) <= 8


def test_a_folder_or_a_checkpoint_is_opened(tmp_path):
    made = new_policy(PolicyConfig(**TINY), ["x = 1\n"], seed=0)
    made.save(str(tmp_path / "p"))
    assert open_policy(PolicyConfig(model=str(tmp_path / "p"))).version == made.version
    assert open_policy(PolicyConfig(model="new"), checkpoint=str(tmp_path / "p")).version == made.version


def test_a_script_is_read_from_a_file_and_hands_out_its_answers_in_order(tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps(["a", "b"]))
    policy = open_policy(PolicyConfig(kind="scripted", model=str(tmp_path / "answers.json")))
    samples = policy.sample([[], [], []], temperature=1.0, max_new_tokens=5, seed=0)
    assert [sample.text for sample in samples] == ["a", "b", "a"]


def test_a_script_may_be_a_function_of_prompt_and_seed():
    policy = ScriptedPolicy(lambda messages, seed: f"{messages[0]['content']}{seed}")
    prompts = [[{"role": "user", "content": "x"}]] * 2
    texts = [s.text for s in policy.sample(prompts, temperature=1.0, max_new_tokens=5, seed=[4, 9])]
    assert texts == ["x4", "x9"]


@pytest.mark.parametrize(
    ("content", "error"), [(None, NotFound), ("{", ConfigError), ('{"a": 1}', ConfigError)]
)
def test_a_script_that_cannot_be_read_is_one_clear_error(tmp_path, content, error):
    file = tmp_path / "answers.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(error, match=r"answers\.json"):
        open_policy(PolicyConfig(kind="scripted", model=str(file)))
