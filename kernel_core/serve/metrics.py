"""Figures of the service, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.judged = Counter(
            "dojo_judged", "Calls that were judged, each id once.", ["verdict"], registry=self._registry
        )
        self.rejoined = Counter(
            "dojo_rejoined", "Repeated calls that got the answer of their first.", registry=self._registry
        )
        self.refused = Counter(
            "dojo_refused", "Calls without an evaluation.", ["error"], registry=self._registry
        )
        self.in_work = Gauge("dojo_in_work", "Calls without an answer yet.", registry=self._registry)
        self.judges = Gauge("dojo_judges", "Judges in service.", registry=self._registry)
        self.seconds = Histogram(
            "dojo_judging_seconds",
            "From the acceptance of a call to its evaluation.",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all figures as text."""
        return generate_latest(self._registry)
