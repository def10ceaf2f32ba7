"""Conversations from files: every answer is taught, bad lines are named, a cold start learns from them."""

import json

import pytest
import torch

from kernel_core.config import ColdStartConfig, PolicyConfig
from kernel_core.errors import ConfigError, NotFound
from kernel_core.learn.cold_start.chat_files import read_transcripts, transcripts_digest
from kernel_core.learn.cold_start.sft import cold_start, encode, starting_policy
from kernel_core.store import Store


def chat(*turns):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]}


@pytest.fixture
def written(tmp_path):
    """Writes lines to a file; gives its path."""

    def write(*lines, name="chats.jsonl"):
        (tmp_path / name).write_text(
            "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
        )
        return str(tmp_path / name)

    return write


def test_every_answer_is_taught_with_what_came_before_it(written):
    system = {"messages": [{"role": "system", "content": "Be brief."}, *chat("c?", "c")["messages"]]}
    found = read_transcripts([written(chat("a?", "a", "b?", "b"), system)])
    assert [one.answer for one in found] == ["a", "b", "c"]
    assert [[message["content"] for message in one.messages] for one in found] == [
        ["a?"],
        ["a?", "a", "b?"],
        ["Be brief.", "c?"],
    ]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{not json", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ({"messages": []}, "answers nothing"),
        (chat("only a question"), "answers nothing"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ("\x00\x01", "Invalid JSON"),
    ],
)
def test_a_line_that_is_no_conversation_is_named_and_the_rest_kept(written, caplog, bad, words):
    found = read_transcripts([written(chat("a?", "a"), bad, "", chat("b?", "b"))])
    assert [one.answer for one in found] == ["a", "b"]
    assert "line 2 is left out" in caplog.text
    assert words in caplog.text


def test_nothing_to_learn_from_says_what_a_line_must_look_like(written):
    with pytest.raises(ConfigError, match="messages"):
        read_transcripts([written("[]")])
    with pytest.raises(NotFound):
        read_transcripts(["nowhere/chats.jsonl"])


def test_other_content_is_another_digest(written):
    first = transcripts_digest([written(chat("a?", "a"))])
    assert transcripts_digest([written(chat("a?", "b"))]) != first
    assert transcripts_digest([written(chat("a?", "a"))]) == first


def test_a_cold_start_learns_from_them(written, tmp_path):
    path = written(*(chat(f"number {i % 3}?", f"it is {i % 3}!") for i in range(60)))
    conversations = read_transcripts([path])
    config = PolicyConfig(
        model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=300, max_context=128
    )
    torch.manual_seed(0)
    policy = starting_policy(config, conversations, seed=0)
    assert all(len(row.answer_ids) > 1 for row in encode(policy, conversations))
    settings = ColdStartConfig(data=(path,), steps=120, batch_tokens=512, lr=5e-3, warmup=2)
    report = cold_start(policy, conversations, settings, Store(tmp_path / "run"))
    assert report.mixture == {"given": 60}
    assert report.loss < 0.5
