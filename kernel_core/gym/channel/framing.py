"""Messages between the gym's processes: a JSON header, raw bytes, and sometimes file descriptors.

A frame is `magic · header length · blob length · header · blob`. The other end may be a candidate that
writes what it likes, so lengths are bounded before anything is read and nothing is ever unpickled.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAGIC = b"DJ1\n"
_PREFIX = struct.Struct("<4sIQ")
_MAX_DESCRIPTORS = 4
MAX_HEADER_BYTES = 32 << 20
MAX_BLOB_BYTES = 2 << 30


class ChannelClosed(Exception):
    """The other end is gone."""


class ChannelGarbage(Exception):
    """The other end sent something that is not a message."""


class ChannelTimeout(Exception):
    """No whole message came before the deadline."""


@dataclass(frozen=True, slots=True)
class Message:
    """One received message. The receiver owns `descriptors` and closes them."""

    header: dict[str, Any]
    blob: bytearray
    descriptors: tuple[int, ...] = ()


def send(
    channel: socket.socket,
    header: dict[str, Any],
    blob: bytes | bytearray | memoryview = b"",
    descriptors: tuple[int, ...] = (),
) -> None:
    """Send one message. Raises `ChannelClosed` when the other end is closed."""
    text = json.dumps(header, separators=(",", ":")).encode()
    prefix = _PREFIX.pack(MAGIC, len(text), len(blob))
    try:
        if descriptors:
            socket.send_fds(channel, [prefix], list(descriptors))
        else:
            channel.sendall(prefix)
        channel.sendall(text)
        if blob:
            channel.sendall(blob)
    except OSError as error:
        raise ChannelClosed(str(error)) from error


def comes(channel: socket.socket, deadline: float) -> bool:
    """Wait until a message begins to come, or the other end closes, and say so; not past `deadline`, a
    `time.monotonic()` value."""
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    return bool(waiting.poll(1e3 * max(0.0, deadline - time.monotonic())))


def receive(
    channel: socket.socket,
    *,
    deadline: float | None = None,
    max_header: int = MAX_HEADER_BYTES,
    max_blob: int = MAX_BLOB_BYTES,
    take_descriptors: bool = False,
) -> Message:
    """The next message; `deadline` is a `time.monotonic()` value.

    Raises `ChannelClosed`, `ChannelGarbage` or `ChannelTimeout`.
    """
    descriptors: list[int] = []
    try:
        prefix = _read(channel, _PREFIX.size, deadline, descriptors if take_descriptors else None)
        magic, header_length, blob_length = _PREFIX.unpack(prefix)
        if magic != MAGIC or header_length > max_header or blob_length > max_blob:
            raise ChannelGarbage("not a message of this protocol, or too long a one")
        text = _read(channel, header_length, deadline, None)
        blob = _read(channel, blob_length, deadline, None)
        try:
            header = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ChannelGarbage(f"a header that is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise ChannelGarbage("a header that is not a JSON object")
    except BaseException:
        close_all(descriptors)
        raise
    return Message(header=header, blob=blob, descriptors=tuple(descriptors))


def close_all(descriptors: Iterable[int]) -> None:
    """Close the descriptors of a message that is dropped."""
    for descriptor in descriptors:
        os.close(descriptor)


def _read(
    channel: socket.socket, length: int, deadline: float | None, descriptors: list[int] | None
) -> bytearray:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        _set_timeout(channel, deadline)
        try:
            if descriptors is None:
                count = channel.recv_into(view[filled:])
            else:
                chunk, ancillary, _, _ = channel.recvmsg(
                    length - filled, socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
                )
                count = len(chunk)
                view[filled : filled + count] = chunk
                descriptors.extend(_descriptors_in(ancillary))
        except TimeoutError as error:
            raise ChannelTimeout("no message before the deadline") from error
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if count == 0:
            raise ChannelClosed("the other end closed the channel")
        filled += count
    return data


def _set_timeout(channel: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        channel.settimeout(None)
        return
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise ChannelTimeout("no message before the deadline")
    channel.settimeout(remaining)


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return descriptors.tolist()
