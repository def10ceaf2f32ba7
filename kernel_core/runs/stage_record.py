"""Record of one stage's work in a run: done already, to resume, or refused because of other settings.

`stages/NAME.json` in the run's folder records with which settings, inputs and code a stage's output was
made. A stage with a record that says `done`, with the same settings and inputs, is not run again. A stage
that was begun with others is refused, and the differences are named: no output is ever taken for another's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kernel_core
from kernel_core.data_folder import DATA
from kernel_core.errors import ConfigError
from kernel_core.runs.run_folder import Run, StageRecord, stamp
from kernel_core.store import MANIFEST, Store, digest_of

_PACKAGE = Path(kernel_core.__file__).parent
log = logging.getLogger(__name__)


class StageWork:
    """Stage in progress: the store for its output, and whether it is complete already."""

    def __init__(self, store: Store, *, done: bool) -> None:
        self.store = store
        self.done = done
        self.output = ""
        """Digest of what was made, for a stage without a sealed folder."""


@contextlib.contextmanager
def working_on(
    run: Run,
    stage: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    *,
    folder: str,
    may_change: tuple[str, ...] = (),
    follows_inputs: bool = False,
) -> Iterator[StageWork]:
    """Lock and record a stage's work: `.done` says whether any is left; leaving without an error marks it
    done.

    `folder` under the run is where its output goes ("" for the run's own folder). `may_change` names
    settings that say how far to go and not what is made; `follows_inputs` lets other inputs be worked in
    where they would be refused. Raises `ConfigError` if the stage was begun
    with other settings or inputs, or if another process of this host is at it.
    """
    output = run.store.child(folder) if folder else run.store
    requested = canonical(config)
    with _locked(run, stage):
        earlier = run.stage(stage) if output.exists() else None
        if earlier is not None:
            expected = earlier.inputs if follows_inputs else inputs
            _refuse_differences(run, earlier, requested, expected, output, may_change)
            if earlier.code != code_version():
                log.warning("%s of %s was begun by other code; going on with it", stage, run.name)
            if earlier.status == "done" and earlier.config == requested and earlier.inputs == dict(inputs):
                log.info("%s: done already, in %s", stage, output.root)
                yield StageWork(output, done=True)
                return
        begun = StageRecord(
            stage=stage,
            status="begun",
            config=requested,
            inputs=dict(inputs),
            code=code_version(),
            begun_at=earlier.begun_at if earlier is not None else stamp(),
        )
        run.record(begun)
        log.info("%s: %s in %s", stage, "begins" if earlier is None else "goes on", output.root)
        work, start = StageWork(output, done=False), time.monotonic()
        yield work
        made = work.output or sealed_digest(output)
        seconds = round(time.monotonic() - start, 2)
        run.record(begun.model_copy(update={"status": "done", "seconds": seconds, "output": made}))
        log.info("%s: done after %.1f s", stage, seconds)


def sealed_digest(folder: Store) -> str:
    """Digest of a sealed folder's content; empty for one that is not sealed."""
    if not folder.exists(MANIFEST):
        return ""
    return digest_of(folder.read_json(MANIFEST)["files"])


def code_version() -> str:
    """Digest of the sources of all of `kernel_core`: results carry the code they were made with."""
    sources = {str(path.relative_to(_PACKAGE)): path.read_text() for path in sorted(_PACKAGE.rglob("*.py"))}
    return digest_of(sources)[:16]


def problems_digest() -> str:
    """Digest of the problems and source pins under `data/` that a snapshot is cleaned against."""
    files = [*sorted((DATA / "problems").rglob("*.py")), DATA / "sources.toml"]
    return digest_of({path.name: path.read_text() for path in files})


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they read back from JSON, so that tuples and lists compare equal."""
    read_back: dict[str, Any] = json.loads(json.dumps(dict(config), default=str))
    return read_back


@contextlib.contextmanager
def _locked(run: Run, stage: str) -> Iterator[None]:
    """Hold a lock that the system releases when its holder dies and that children do not inherit.

    Only a local root has one; elsewhere the run's state file is the only guard.
    """
    if not run.store.is_local:
        yield
        return
    path = Path(run.store.path(f"stages/{stage}.lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another process is already at {stage} of run {run.name!r}; wait, stop it with "
                f"`dojo runs stop {run.name}`, or choose another name with run=NAME"
            ) from None
        yield


def resuming(run: Run) -> str:
    """Return the command that resumes a run."""
    return f"dojo runs resume {run.name}{'' if run.root == 'runs' else f' --root {run.root}'}"


def _refuse_differences(
    run: Run,
    earlier: StageRecord,
    requested: Mapping[str, Any],
    inputs: Mapping[str, str],
    output: Store,
    may_change: tuple[str, ...],
) -> None:
    was, now = flat(earlier.config), flat(requested)
    changed = [
        f"{key} = {was.get(key)!r}, now {now.get(key)!r}"
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key) and key not in may_change
    ]
    changed += [
        f"another {name}"
        for name in sorted(earlier.inputs.keys() | inputs.keys())
        if earlier.inputs.get(name) != inputs.get(name)
    ]
    if changed:
        shown = "; ".join(changed[:3]) + (f"; and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise ConfigError(
            f"{earlier.stage} in {output.root} was begun with {shown}: `{resuming(run)}` goes on with that; "
            f"choose another name with run=NAME for a run of its own, or delete {output.root}"
        )


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        flattened |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
        )
    return flattened
