"""Times of references by problem, GPU, driver and versions: measured once, kept where there is a store.

A kept baseline counts only for the machine it was measured on, and its interval gives its precision.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from pydantic import ValidationError

from kernel_core.errors import Corrupt
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.oracle.reference import Reference
from kernel_core.records import Platform, Record, Timing
from kernel_core.store import Store, digest_of

_log = logging.getLogger(__name__)
_IN_MEMORY = 1024


class Baseline(Record):
    """The reference's own time, and what the judge's clock sees beside it, by call."""

    timing: Timing
    overhead_ms: float


class _StoredTimes(Record):
    """A baseline as it lies in a store, for people too."""

    problem_id: str
    how: str
    platform: Platform
    gym_version: str
    baseline: Baseline


class Baselines:
    """Known baselines of one platform. `how` is how references are run: `eager` or `compile`."""

    def __init__(self, store: Store | None, platform: Platform, how: str) -> None:
        self._store = store
        self._platform = platform
        self._how = how
        self._known: OrderedDict[str, Baseline] = OrderedDict()

    def get(self, reference: Reference) -> Baseline | None:
        """The kept time of a reference; after a read error it is measured again."""
        name = self._name(reference)
        if name not in self._known and self._store is not None and self._store.exists(name):
            try:
                kept = _StoredTimes.model_validate(self._store.read_json(name))
            except (ValidationError, Corrupt) as error:
                _log.warning("%s: measuring again (%s)", self._store.path(name), error)
                return None
            self._remember(name, kept.baseline)
        return self._known.get(name)

    def put(self, reference: Reference, baseline: Baseline) -> None:
        """Keep a measured baseline."""
        name = self._name(reference)
        self._remember(name, baseline)
        if self._store is not None:
            kept = _StoredTimes(
                problem_id=reference.problem.id,
                how=self._how,
                platform=self._platform,
                gym_version=GYM_VERSION,
                baseline=baseline,
            )
            self._store.write_json(name, kept.model_dump(mode="json"))

    def _remember(self, name: str, baseline: Baseline) -> None:
        self._known[name] = baseline
        while len(self._known) > _IN_MEMORY:
            self._known.popitem(last=False)

    def _name(self, reference: Reference) -> str:
        key = digest_of([reference.key, self._how, self._platform.model_dump(mode="json"), GYM_VERSION])
        return f"baselines/{key[:2]}/{key}.json"
