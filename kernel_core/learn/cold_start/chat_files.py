"""Conversations from other sources, to learn from: chat messages as JSON lines.

A line is `{"messages": [{"role": "system" | "user" | "assistant", "content": TEXT}, …]}`. Every answer of the
assistant's is taught, with all that came before it as its prompt. One with `"weight": 0` is a prompt only.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from kernel_core.errors import ConfigError
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.store import Store

log = logging.getLogger(__name__)

_SHOWN = 5
"""Lines that are left out are named one by one up to so many."""


class _ChatMessage(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str = Field(min_length=1)
    weight: Literal[0, 1] = 1


class _Transcript(BaseModel):
    messages: tuple[_ChatMessage, ...]


def read_transcripts(paths: Sequence[str]) -> list[Conversation]:
    """Read the conversations of some files (local, or any fsspec URI), in their order.

    Lines that are no conversation are left out and named. Raises `NotFound` for a file that is not there, and
    `ConfigError` when nothing is left.
    """
    conversations: list[Conversation] = []
    num_left_out = 0
    for path in paths:
        for number, line in enumerate(_read(path).split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                conversations += _answers(line, f"{path}:{number}")
            except ValueError as error:
                num_left_out += 1
                if num_left_out <= _SHOWN:
                    log.warning("%s, line %d is left out: %s", path, number, _first_line(error))
    if num_left_out > _SHOWN:
        log.warning("%d lines are left out in all", num_left_out)
    if not conversations:
        raise ConfigError(
            f"{', '.join(paths)}: no line is a conversation with an answer; a line must look like "
            '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
        )
    return conversations


def transcripts_digest(paths: Sequence[str]) -> str:
    """Return a digest of the content of the files."""
    return hashlib.sha256(b"".join(hashlib.sha256(_read(path)).digest() for path in paths)).hexdigest()


def _read(path: str) -> bytes:
    folder, slash, name = path.rpartition("/")
    return Store(folder if slash else ".").read(name)


def _answers(line: bytes, name: str) -> Iterator[Conversation]:
    """Raises `ValueError` (pydantic's is one) where the line is no conversation."""
    messages = _Transcript.model_validate_json(line).messages
    answers = [
        index
        for index, message in enumerate(messages)
        if message.role == "assistant" and index and message.weight
    ]
    if not answers:
        raise ValueError("the assistant answers nothing")
    for index in answers:
        yield Conversation(
            problem_id=name,
            kind="given",
            grade="",
            messages=tuple(message.model_dump(exclude={"weight"}) for message in messages[:index]),
            answer=messages[index].content,
        )


def _first_line(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else first["msg"]
    return str(error)
