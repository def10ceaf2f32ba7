"""Known evaluations: `evaluations/ab/<key>.json` in a run's store.

The key is made of the inputs of a verdict: problem, sizes, candidate, seed, device kind, the judge's version
and the relevant settings. A fault of the gym raises and so is never stored.
"""

from __future__ import annotations

from pydantic import ValidationError

from kernel_core.config import GymConfig
from kernel_core.errors import Corrupt
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.records import Evaluation, NoCandidate
from kernel_core.store import Store, digest_of


def request_key(request: JudgeRequest, config: GymConfig) -> str:
    """The name under which this request's evaluation is kept."""
    candidate = request.candidate
    # Only a GPU measures. With timing the key has no such entry, so keys of earlier evaluations still hold.
    untimed = {} if request.timing or config.device == "cpu" else {"timing": False}
    fast = {"fast": True} if request.fast else {}
    return digest_of(
        untimed
        | fast
        | {
            "problem": request.problem.sha256,
            "sizes": request.run_sizes(config.device),
            "precision": request.problem.precision,
            "candidate": ["none", candidate.reason]
            if isinstance(candidate, NoCandidate)
            else candidate.sha256,
            "seed": request.seed,
            "device": config.device,
            "gym": GYM_VERSION,
            "settings": [
                config.rules,
                config.trials,
                config.deadline_s,
                config.memory_mb,
                config.compile_gate,
                config.predict_gpu,
                config.baseline,
                config.compile_mode,
                config.tolerance,
            ],
        }
    )


class Cache:
    """Evaluations by key, in a store or nowhere."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def get(self, key: str) -> Evaluation | None:
        """The kept evaluation, if there is one. Raises `Corrupt` when it cannot be read."""
        if self._store is None or not self._store.exists(_name(key)):
            return None
        try:
            return Evaluation.model_validate(self._store.read_json(_name(key)))
        except ValidationError as error:
            raise Corrupt(
                f"{self._store.path(_name(key))} is not an evaluation; remove it and run again"
            ) from error

    def put(self, key: str, evaluation: Evaluation) -> None:
        """Keep an evaluation."""
        if self._store is not None:
            self._store.write_json(_name(key), evaluation.model_dump(mode="json"))


def _name(key: str) -> str:
    return f"evaluations/{key[:2]}/{key}.json"
