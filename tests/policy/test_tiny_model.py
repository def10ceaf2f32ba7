"""A tokenizer made for kernels, and a model from nothing."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_core.config import PolicyConfig
from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import ConfigError
from kernel_core.policy.tiny_model import new_policy, train_tokenizer
from kernel_core.problems.generate import generate


def texts_of(split: str, count: int) -> list[str]:
    kernels = [kernel for made in generate(split, count, seed=0) for kernel in made.kernels]
    return [format_completion(kernel.thinking, kernel.source) for kernel in kernels]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts_of("train", 60), vocab_size=2048)


def pieces(tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer(text)["input_ids"]]


@given(st.text())
@example("\n\n    x\n\t\r\n  y ")
@example("a<|pad|>b<|end|>")
def test_any_text_comes_back_as_it_was(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=False) == text


def test_a_newline_and_its_indentation_are_one_token(tokenizer):
    assert pieces(tokenizer, "x\n    y") == ["x", "\n    ", "y"]


def test_digits_stand_alone_and_no_token_crosses_a_line_break(tokenizer):
    for index in range(5, len(tokenizer)):
        token = tokenizer.decode([index])
        assert not any(c.isdigit() for c in token) or len(token) == 1
        assert "\n" not in token.strip(" \t\n") and (not token.startswith("\n") or not token.strip())


def test_kernels_it_was_not_trained_on_need_few_tokens(tokenizer):
    texts = list(texts_of("validation", 20))
    tokens = sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
    assert sum(map(len, texts)) >= 5 * tokens


def test_the_chat_form_keeps_earlier_turns_as_they_were():
    config = PolicyConfig(hidden_size=32, num_layers=1, num_heads=2, vocab_size=300)
    policy = new_policy(config, ["x = 1\n"], seed=0)
    chat = [{"role": "user", "content": " ask\n"}, {"role": "assistant", "content": "<think>a</think>\nb "}]
    first, second = policy.encode_messages(chat[:1]), policy.encode_messages([*chat, chat[0]])
    assert second[: len(first)].tolist() == first.tolist()
    answer = policy.encode_completion(chat[1]["content"])
    assert second[len(first) : len(first) + len(answer)].tolist() == answer.tolist()


def test_the_seed_decides_the_weights_and_the_version():
    config = PolicyConfig(hidden_size=32, num_layers=1, num_heads=2, vocab_size=300)
    versions = [new_policy(config, ["x = 1\n"], seed=seed).version for seed in (1, 1, 2)]
    assert versions[0] == versions[1] != versions[2]


def test_a_width_that_the_heads_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="hidden_size = 100"):
        new_policy(PolicyConfig(hidden_size=100, num_heads=8, vocab_size=300), ["x"], seed=0)
