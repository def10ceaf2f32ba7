"""Settings of all five stages."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from kernel_core.config.base import Config
from kernel_core.config.corpus import IndexConfig, IngestConfig
from kernel_core.config.evaluate import BestOfNConfig, EvaluateConfig
from kernel_core.config.train import TrainConfig


class PipelineConfig(Config):
    """All five stages, in order."""

    FORM: ClassVar[tuple[str, ...]] = ("run", "root", "train", "evaluate", "best_of_n")
    run: str = Field(
        "quickstart",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Run name: its folder under `root`.",
    )
    root: str = Field("runs", description="Folder of all runs: a local path or an fsspec URI.")
    ingest: IngestConfig = IngestConfig()
    index: IndexConfig = IndexConfig()
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = EvaluateConfig()
    best_of_n: BestOfNConfig = BestOfNConfig()
