"""The works of a replay with their device times, and whether these can be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.gym.channel.messages import DeviceWork
from kernel_core.gym.timing.timing_stats import Clocked, ReplayTime, contradicts


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """The measured works of a replay; none, where it was not measured."""

    works: Sequence[DeviceWork] = ()
    is_same: bool = True
    """See `ReplayTime`."""

    @property
    def time(self) -> ReplayTime:
        """The device time of all works."""
        return ReplayTime(sum(work.device_ms for work in self.works), len(self.works), self.is_same)


def others_matter(clocked: Clocked | None, replayed: ReplayCost) -> bool:
    """Return True if times that other work may have lengthened decide between its kernels and the library's,
    or against the claim of its process."""
    return any(not work.own for work in replayed.works) or contradicted(clocked, replayed)


def contradicted(clocked: Clocked | None, replayed: ReplayCost) -> bool:
    """Return True if its times are not those that the candidate's process claims, if it was timed."""
    return clocked is not None and contradicts(clocked, replayed.time)
