"""The use of a GPU by a candidate's process: only while the judge lets it."""

from __future__ import annotations

import socket
from typing import Any

import torch

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import line_in
from kernel_core.gym.channel.failures import NvccError
from kernel_core.gym.untrusted.candidate.inline_cuda import BuiltLibrary


class DeviceGate:
    """Asks the judge before the first work of a pass on the device; compilation needs no leave."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._is_open = False

    def pass_through(self) -> None:
        """Wait until the device may be used."""
        if not self._is_open:
            framing.send(self._channel, {"ready": True})
            framing.receive(self._channel)
            self._is_open = True

    def step_aside(self) -> None:
        """Something is to be compiled in the middle of a pass: let others use the device meanwhile."""
        if self._is_open:
            self.close()
            framing.send(self._channel, {"aside": True})

    def build(self, source: str, sources: dict[str, Any]) -> BuiltLibrary:
        """Ask for a build of parts of the candidate's `source`, while others use the device."""
        was_open = self._is_open
        self.step_aside()
        framing.send(self._channel, {"build": sources})
        answer = framing.receive(self._channel)
        if was_open:
            self.pass_through()
        header = answer.header
        if "failed" in header:
            texts = sources[header["part"]] if header["part"] else [""]
            raise NvccError(header["failed"], line_in(source, "\n".join(texts), header["line"]))
        return header["built"], bytes(answer.blob)

    def close(self) -> None:
        """The pass is over."""
        torch.cuda.synchronize()
        self._is_open = False
