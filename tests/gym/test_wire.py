"""Messages arrive whole or not at all, whatever the other end sends."""

from __future__ import annotations

import os
import socket
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_core.gym import wire
from kernel_core.gym.claims import Claim, Failure, Loaded, Raised, Ran, Replayed

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_FIELDS = [
    "failed",
    "error",
    "message",
    "line",
    "kernels",
    "launches",
    "watched",
    "nesting",
    "leaves",
    "works",
]


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def _soon() -> float:
    return time.monotonic() + 2.0


@settings(max_examples=50, deadline=None)
@given(header=st.dictionaries(st.text(max_size=8), _JSON, max_size=4), blob=st.binary(max_size=200))
def test_a_message_arrives_as_it_was_sent(header: dict[str, object], blob: bytes) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        wire.send(ours, header, blob)
        message = wire.receive(theirs, deadline=_soon())
    assert (message.header, bytes(message.blob)) == (header, blob)


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_is_never_a_message(noise: bytes) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(noise)
        ours.close()
        with pytest.raises((wire.ChannelClosed, wire.ChannelGarbage)):
            wire.receive(theirs, deadline=_soon())


@pytest.mark.parametrize("text", [b"[]", b"3", b"{", b"[" * 100_000, b'"' + b"x" * 10])
def test_a_header_that_is_no_object_is_garbage(text: bytes) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", wire.MAGIC, len(text), 0) + text)
        with pytest.raises(wire.ChannelGarbage):
            wire.receive(theirs, deadline=_soon())


@pytest.mark.parametrize(("header_length", "blob_length"), [(2**31, 0), (2, 2**40)])
def test_lengths_beyond_the_bound_are_refused_before_reading(header_length: int, blob_length: int) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", wire.MAGIC, header_length, blob_length))
        with pytest.raises(wire.ChannelGarbage):
            wire.receive(theirs, deadline=_soon())


def test_half_a_message_times_out() -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", wire.MAGIC, 10, 0) + b"{")
        with pytest.raises(wire.ChannelTimeout):
            wire.receive(theirs, deadline=time.monotonic() + 0.05)


def test_descriptors_travel_only_where_they_are_taken() -> None:
    reading, writing = os.pipe()
    ours, theirs = _pair()
    with ours, theirs:
        wire.send(ours, {"a": 1}, descriptors=(reading,))
        message = wire.receive(theirs, deadline=_soon(), take_descriptors=True)
        [received] = message.descriptors
        os.write(writing, b"x")
        assert os.read(received, 1) == b"x"
        wire.send(ours, {"a": 2}, descriptors=(reading,))
        assert wire.receive(theirs, deadline=_soon()).descriptors == ()
    for descriptor in (reading, writing, received):
        os.close(descriptor)


@settings(max_examples=200, deadline=None)
@given(header=st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=5), _JSON, max_size=6))
def test_claims_are_typed_or_refused(header: dict[str, object]) -> None:
    for kind in (Failure, Loaded, Ran, Raised, Replayed):
        try:
            claim: Claim = kind.model_validate(header)
        except ValidationError:
            continue
        assert claim.model_dump().keys() >= header.keys()
