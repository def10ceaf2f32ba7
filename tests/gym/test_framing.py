"""Messages arrive whole or not at all, whatever the other end sends."""

from __future__ import annotations

import os
import re
import socket
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.messages import (
    CallTimes,
    Claim,
    DeviceWork,
    Failure,
    Kernel,
    Launch,
    Loaded,
    Muted,
    Played,
    Ran,
    Replayed,
    Resources,
)

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
        framing.send(ours, header, blob)
        message = framing.receive(theirs, deadline=_soon())
    assert (message.header, bytes(message.blob)) == (header, blob)


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_is_never_a_message(noise: bytes) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(noise)
        ours.close()
        with pytest.raises((framing.ChannelClosed, framing.ChannelGarbage)):
            framing.receive(theirs, deadline=_soon())


@pytest.mark.parametrize("text", [b"[]", b"3", b"{", b"[" * 100_000, b'"' + b"x" * 10])
def test_a_header_that_is_no_object_is_garbage(text: bytes) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", framing.MAGIC, len(text), 0) + text)
        with pytest.raises(framing.ChannelGarbage):
            framing.receive(theirs, deadline=_soon())


@pytest.mark.parametrize(("header_length", "blob_length"), [(2**31, 0), (2, 2**40)])
def test_lengths_beyond_the_bound_are_refused_before_reading(header_length: int, blob_length: int) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", framing.MAGIC, header_length, blob_length))
        with pytest.raises(framing.ChannelGarbage):
            framing.receive(theirs, deadline=_soon())


def test_half_a_message_times_out() -> None:
    ours, theirs = _pair()
    with ours, theirs:
        ours.sendall(struct.pack("<4sIQ", framing.MAGIC, 10, 0) + b"{")
        with pytest.raises(framing.ChannelTimeout):
            framing.receive(theirs, deadline=time.monotonic() + 0.05)


def test_descriptors_travel_only_where_they_are_taken() -> None:
    reading, writing = os.pipe()
    ours, theirs = _pair()
    with ours, theirs:
        framing.send(ours, {"a": 1}, descriptors=(reading,))
        message = framing.receive(theirs, deadline=_soon(), take_descriptors=True)
        [received] = message.descriptors
        os.write(writing, b"x")
        assert os.read(received, 1) == b"x"
        framing.send(ours, {"a": 2}, descriptors=(reading,))
        assert framing.receive(theirs, deadline=_soon()).descriptors == ()
    for descriptor in (reading, writing, received):
        os.close(descriptor)


@settings(max_examples=100, deadline=None)
@given(
    blob=st.binary(max_size=40), position=st.integers(0, 70), byte=st.integers(0, 255), cut=st.integers(0, 70)
)
def test_a_damaged_message_is_never_read_as_more_than_was_sent(
    blob: bytes, position: int, byte: int, cut: int
) -> None:
    ours, theirs = _pair()
    with ours, theirs:
        framing.send(ours, {"a": 1}, blob)
        frame = bytearray(theirs.recv(200))
        if position < len(frame):
            frame[position] = byte
        for part in (frame[:cut], frame[cut:]):
            ours.sendall(part)
        ours.close()
        try:
            message = framing.receive(theirs, deadline=_soon(), max_blob=64)
        except (framing.ChannelClosed, framing.ChannelGarbage):
            return
    assert isinstance(message.header, dict)
    assert len(message.blob) <= len(blob)


def _all_claims(kind: type[Claim] = Claim) -> list[type[Claim]]:
    return [one for below in kind.__subclasses__() for one in (below, *_all_claims(below))]


@settings(max_examples=100, deadline=None)
@given(header=st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=5), _JSON, max_size=6))
def test_claims_are_typed_or_refused(header: dict[str, object]) -> None:
    for kind in _all_claims():
        try:
            claim: Claim = kind.model_validate(header)
        except ValidationError:
            continue
        assert claim.model_dump().keys() >= header.keys()


_LAUNCH = {"launch": 0, "grid": [4], "args": {"x": 1}, "options": {"num_warps": 4}}
_KERNEL = {"name": "k", "line": 3, "globals": {}}
_WORK = {
    "name": "k",
    "own": True,
    "bytes_accessed": 1,
    "bytes_distinct": 1,
    "operations": {"float": 1},
    "padded": {},
    "is_unknown": False,
    "programs": 0,
    "balance": 0.5,
}
_RESOURCES = {"registers": 32, "spilled_bytes": 0, "shared_bytes": 16, "occupancy": 0.5}
_VALID: list[tuple[type[Claim], dict[str, object]]] = [
    (Failure, {"failed": "import", "error": "E", "message": "m", "line": 1, "by_compiler": False}),
    (Loaded, {"loaded": True, "features": ["files"], "unmatched": []}),
    (Kernel, _KERNEL),
    (Launch, _LAUNCH),
    (Ran, {"kernels": [_KERNEL], "launches": [_LAUNCH], "watched": [], "nesting": 0, "leaves": [[0]]}),
    (CallTimes, {"times_ms": [0.5, 1.5]}),
    (Resources, _RESOURCES),
    (DeviceWork, {"name": "k", "own": True, "device_ms": 0.5, "copies_only": False, "resources": _RESOURCES}),
    (Played, {"played": True}),
    (Muted, {"muted": True, "moving": 2}),
    (Replayed, {"works": [_WORK | {"copies_only": False}]}),
]
_NAN = float("nan")
_ODD = [None, True, 1, -1, 0.0, 1e400, _NAN, "1", "x" * 5000, [], [[]], {}, 1 << 70, [True], [_NAN], [-1.0]]
_FREE_FORM = ("nesting", "globals", "args", "leaves")
"""Fields whose content their readers check."""


@pytest.mark.parametrize(("kind", "valid"), _VALID, ids=lambda value: getattr(value, "__name__", ""))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_claim_with_one_odd_field_keeps_its_types_or_is_refused(
    kind: type[Claim], valid: dict[str, object], data: st.DataObject
) -> None:
    whole = kind.model_validate(valid)
    name = data.draw(st.sampled_from(sorted(valid)))
    try:
        claim = kind.model_validate(valid | {name: data.draw(st.sampled_from(_ODD) | _JSON)})
    except ValidationError:
        return
    kept = getattr(claim, name)
    if name not in _FREE_FORM and not (name == "resources" and kept is None):
        assert type(kept) is type(getattr(whole, name))
        assert not {"nan", "inf", "None"} & set(re.split(r"\W+", repr(kept)))
