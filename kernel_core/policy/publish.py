"""Publishing weights, and finding out whether they arrived: a gate that training does not pass without.

Servers have been seen to answer a reload with success and to go on with old weights in part of the model. So
after every publication a few fixed texts are scored by the sampler and by the trainer. With mean |Δ| of their
log-probabilities,

    gap   = mean |sampler now − trainer now|
    moved = mean |trainer now − trainer when weights were last seen to arrive|
    old   = mean |sampler now − trainer when weights were last seen to arrive|

weights have not arrived when the gap is above a limit. When the trainer has moved by clearly more than the
two ever differ (4 × the smallest gap so far), the sampler shows which weights it has. Nearer to the old ones:
they have not arrived. Nearer to the new ones: they are seen to arrive. A smaller update proves nothing either
way, so the compared weights stay where they were: small updates add up until a sampler that took none of them
is found out.
"""

from __future__ import annotations

import numpy as np

from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import StaleWeights
from kernel_core.policy.chat_tokens import Ids
from kernel_core.policy.sampler import InlineSampler, Logprobs, Sampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.records import Record

CLEARLY = 4.0
"""Signal-to-noise threshold: a smaller change cannot be told from noise."""

_PROBES = (
    (
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x) * 2.0\n",
        "@triton.jit\ndef kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < n)\n"
        "    tl.store(out_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=offs < n)\n",
    ),
    (
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n",
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        out = torch.empty_like(x)\n"
        "        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)\n        return out\n",
    ),
)
"""Probe prompts and answers, in the style of the text that policies write here."""


class Publication(Record):
    """Result of a publication, in mean |Δ log-probability| (nats)."""

    version: str
    gap: float
    """Between sampler and trainer."""
    moved: float
    """Between the trainer now and at the last publication."""


class Publisher:
    """Publishes a policy to a sampler and verifies each time."""

    def __init__(self, sampler: Sampler, policy: Trainable, max_gap: float) -> None:
        self._sampler, self._policy, self._max_gap = sampler, policy, max_gap
        self._reference = InlineSampler(policy) if isinstance(policy, TorchPolicy) else policy
        """Scores as the trainer computes, in its arithmetic."""
        self._probes: list[tuple[Ids, Ids]] = [
            (
                policy.encode_messages([{"role": "user", "content": asked}]),
                policy.encode_completion(format_completion("", answered)),
            )
            for asked, answered in _PROBES
        ]
        self._before: Logprobs | None = None
        """The trainer's scores at the last publication."""
        self._seen: tuple[Logprobs, str] | None = None
        """The trainer's scores, and its version, when weights were last seen to arrive."""
        self._noise = float("inf")

    def publish(self) -> Publication:
        """Hand over the weights. Raises `StaleWeights` when the sampler does not have them afterwards."""
        self._sampler.publish(self._policy)
        if isinstance(self._sampler, InlineSampler):
            return Publication(version=self._policy.version, gap=0.0, moved=0.0)
        sampler, trainer = self._scores(self._sampler), self._scores(self._reference)
        gap = _distance(sampler, trainer)
        seen, seen_version = self._seen or (trainer, self._policy.version)
        old = _distance(sampler, seen)
        can_tell = _distance(trainer, seen) > CLEARLY * min(self._noise, gap)
        stale = can_tell and old < gap
        if not gap <= self._max_gap or stale or self._sampler.version != self._policy.version:
            since = f", {old:.3g} from those of {seen_version} that arrived" if self._seen else ""
            raise StaleWeights(
                f"the sampler does not have the weights of {self._policy.version}: its log-probabilities are "
                f"{gap:.3g} nats a token from the trainer's (limit {self._max_gap:.3g}){since}, and it says "
                f"{self._sampler.version}; restart the sampler, "
                "or raise sampler.max_gap if its arithmetic is coarser than that"
            )
        moved = 0.0 if self._before is None else _distance(trainer, self._before)
        self._before, self._noise = trainer, min(self._noise, gap)
        if self._seen is None or can_tell:
            self._seen = trainer, self._policy.version
        return Publication(version=self._policy.version, gap=gap, moved=moved)

    def _scores(self, scorer: Sampler | Trainable) -> Logprobs:
        return np.concatenate([scorer.logprobs(prompt, answer, 1.0) for prompt, answer in self._probes])


def _distance(first: Logprobs, second: Logprobs) -> float:
    return float(np.abs(first.astype(np.float64) - second.astype(np.float64)).mean())
