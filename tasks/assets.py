"""A stage's work as Prefect sees it: the folder that it makes is an asset, made of the folders that it reads.

Snapshot → index → checkpoint → scorecard → winners. An asset's key is the folder's address, and its metadata
has the digest of the content.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prefect.assets import Asset, add_asset_metadata, materialize

from kernel_core.report.markdown import artifact_key
from kernel_core.runs.resolve import locate_checkpoint
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import StageWork, sealed_digest, working_on
from kernel_core.store import Store

_REFUSED = re.compile(r"[^\w:/.@+=,~-]")
"""Characters that an asset's key cannot have."""


@contextlib.contextmanager
def making(
    run: Run,
    stage: str,
    settings: Mapping[str, Any],
    reads: Mapping[str, Store],
    inputs: Mapping[str, str] | None = None,
    *,
    folder: str,
    **options: Any,
) -> Iterator[StageWork]:
    """A stage's work, as `working_on` has it; at its end the folder that was made is published as an asset.

    `reads` are the sealed folders that the stage reads, by name, and `inputs` digests of what else it reads.
    A training (`folder` is empty) makes the newest checkpoint.
    """
    digests = {name: sealed_digest(store) for name, store in reads.items()} | dict(inputs or {})
    with working_on(run, stage, settings, digests, folder=folder, **options) as work:
        yield work
    if not work.done:
        made = work.store if folder else Store(locate_checkpoint(run.root, run.name))
        published(run, stage, made, reads)


def asset_of(store: Store) -> Asset:
    """The asset that a folder is."""
    address = Path(store.root).resolve().as_uri() if store.is_local else store.root
    return Asset(key=_REFUSED.sub("-", address))


def published(run: Run, stage: str, made: Store, reads: Mapping[str, Store]) -> None:
    """Publish a folder as an asset that is made of others."""
    asset = asset_of(made)
    sources = [asset_of(store) for store in reads.values()]

    name = f"asset {artifact_key(stage)}"

    @materialize(asset, name=name, task_run_name=name, asset_deps=sources, by="kernel-dojo")
    def publish_asset() -> None:
        add_asset_metadata(asset, {"run": run.name, "stage": stage, "digest": sealed_digest(made)})

    publish_asset()
