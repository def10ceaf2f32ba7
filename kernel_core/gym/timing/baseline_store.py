"""Times of references by problem, way to run them, GPU, driver and versions: measured once, kept where there
is a store. A way that failed is kept with its reason.

A kept baseline counts only for the machine it was measured on, and its interval gives its precision.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from pydantic import ValidationError

from kernel_core.errors import Corrupt
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.oracle.reference import Reference
from kernel_core.records import BaselineKind, BaselineTiming, Platform, Record
from kernel_core.store import Store, digest_of

_log = logging.getLogger(__name__)
_IN_MEMORY = 4096


class MeasuredBaseline(Record):
    """The reference's time in one way to run it, and what the judge's clock sees beside it, by call."""

    row: BaselineTiming
    overhead_ms: float = 0.0


class _StoredBaseline(Record):
    """A baseline as it lies in a store, for people too."""

    problem_id: str
    compile_mode: str
    platform: Platform
    gym_version: str
    baseline: MeasuredBaseline


class Baselines:
    """Known baselines of one platform and one mode of `torch.compile`."""

    def __init__(self, store: Store | None, platform: Platform, compile_mode: str) -> None:
        self._store = store
        self._platform = platform
        self._mode = compile_mode
        self._known: OrderedDict[str, MeasuredBaseline] = OrderedDict()

    def get(self, reference: Reference, kind: BaselineKind) -> MeasuredBaseline | None:
        """Return the kept time of a reference; after a read error it is measured again."""
        name = self._name(reference, kind)
        if name not in self._known and self._store is not None and self._store.exists(name):
            try:
                kept = _StoredBaseline.model_validate(self._store.read_json(name))
            except (ValidationError, Corrupt) as error:
                _log.warning("%s: measuring again (%s)", self._store.path(name), error)
                return None
            self._remember(name, kept.baseline)
        return self._known.get(name)

    def put(self, reference: Reference, baseline: MeasuredBaseline, *, lasting: bool = True) -> None:
        """Keep a measured baseline, or the failure of one; not `lasting`, in this process alone."""
        name = self._name(reference, baseline.row.kind)
        self._remember(name, baseline)
        if self._store is not None and lasting:
            kept = _StoredBaseline(
                problem_id=reference.problem.id,
                compile_mode=self._mode,
                platform=self._platform,
                gym_version=GYM_VERSION,
                baseline=baseline,
            )
            self._store.write_json(name, kept.model_dump(mode="json"))

    def _remember(self, name: str, baseline: MeasuredBaseline) -> None:
        self._known[name] = baseline
        while len(self._known) > _IN_MEMORY:
            self._known.popitem(last=False)

    def _name(self, reference: Reference, kind: BaselineKind) -> str:
        mode = self._mode if kind.startswith("compile") else ""
        key = digest_of([reference.key, kind, mode, self._platform.model_dump(mode="json"), GYM_VERSION])
        return f"baselines/{key[:2]}/{key}.json"
