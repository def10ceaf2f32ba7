"""Conversations as records: what was written, what the judge found, and which answers belong together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_core.records import Candidate, Evaluation, NoCandidate, Record


class Completion(Record):
    """Answer of the policy, without its token arrays."""

    text: str
    num_tokens: int = 0
    finish_reason: Literal["stop", "length", "error"]
    policy_version: str


class Turn(Record):
    """Prompt, completion, candidate, evaluation and reward of one exchange."""

    problem_id: str
    trajectory: int
    """Index of the trajectory in its group."""
    index: int
    """0 for the first turn of a conversation."""
    messages: tuple[dict[str, str], ...]
    """Prompt as chat messages: `role` and `content`."""
    exemplar_ids: tuple[str, ...] = ()
    completion: Completion
    candidate: Candidate | NoCandidate = Field(discriminator="kind")
    evaluation: Evaluation
    repeats_earlier: bool = False
    """True if the trajectory has the same candidate already: it earns nothing again."""


class Trajectory(Record):
    """The turns of one conversation."""

    problem_id: str
    turns: tuple[Turn, ...]


class TrajectoryGroup(Record):
    """The trajectories of one problem in one step."""

    problem_id: str
    trajectories: tuple[Trajectory, ...]
    not_judged: str = ""
    """Reason why the problem is none on the judge's device; then there are no trajectories."""
