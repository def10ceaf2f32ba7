"""Settings of problems, of a snapshot and of its index."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from kernel_core.config.base import Config, one_of_or_text
from kernel_core.config.gym import GymConfig

SUITES = ("generated", "modules", "dojo", "kernelbench")


class WeightedSuite(Config):
    """One suite of a mixture."""

    suite: str = Field(..., description="As `problems.suite`.")
    weight: float = Field(1.0, gt=0, description="Its share of the problems, beside the other weights.")


class ProblemsConfig(Config):
    """Which problems."""

    FORM: ClassVar[tuple[str, ...]] = ("suite", "split", "limit", "levels", "families")
    suite: str = Field(
        "generated",
        description="`dojo` (our own files), `generated`, `modules`, `kernelbench`, a folder, or "
        "`snapshot:FOLDER`.",
        json_schema_extra=one_of_or_text(*SUITES, other="folder or snapshot:FOLDER"),
    )
    mix: tuple[WeightedSuite, ...] = Field(
        (), description="Several suites by weight, such as [{suite: modules, weight: 3}]; replaces `suite`."
    )
    split: Literal["train", "validation", "held_out", "all"] = Field(
        "train", description="Learned from, probed on, or never seen in training."
    )
    file_split: Literal["all", "train", "validation", "held_out"] = Field(
        "all", description="The share of a suite of files, by a hash of each id: 80, 10 and 10 %."
    )
    levels: tuple[int, ...] = Field((1, 2), description="KernelBench levels.")
    families: tuple[str, ...] = Field((), description="Only these families; empty means all of the split.")
    limit: int | None = Field(None, ge=1, description="At most this many.")
    seed: int = Field(0, description="Seeds the generator's draw.")
    sizes: Literal["own", "half", "quarter"] = Field(
        "own",
        description="`half` and `quarter` halve a problem's largest size once or twice: judged sooner. "
        "A CPU judges at the sizes of `# cpu:`, or at small ones by a rule.",
    )
    precision: Literal["own", "float16", "bfloat16"] = Field(
        "own", description="What floating-point inputs and weights are cast to."
    )
    audited: bool = Field(
        True,
        description="Leave out problems of files that zeros, a constant or other inputs' outputs solve.",
    )


class IngestConfig(Config):
    """Corpus sources into one clean snapshot."""

    sources: tuple[str, ...] = Field(("generator",), description="Names in data/sources.toml, or file paths.")
    generator_rows: int = Field(2000, ge=0, description="Problems the source `generator` contributes.")
    modules_rows: int = Field(2000, ge=0, description="Problems the source `modules` contributes.")
    near_duplicate_threshold: float = Field(
        0.95, gt=0, le=1, description="Jaccard similarity of token shingles."
    )
    decontaminate_against: tuple[str, ...] = Field(
        ("dojo", "generated"), description="Suites; their evaluation problems must not be in the snapshot."
    )
    seed: int = Field(0, description="Seeds every draw of this stage.")


class VerifyConfig(Config):
    """Re-judging a snapshot's kernels."""

    gym: GymConfig = GymConfig()
    sources: tuple[str, ...] = Field((), description="Only rows of these sources; empty: all.")
    limit: int | None = Field(None, ge=1, description="Judge so many rows at most, in the snapshot's order.")
    seed: int = Field(0, description="Seeds the input draws.")


class IndexConfig(Config):
    """Embeddings and a nearest-neighbour index over a snapshot."""

    embedder: str = Field(
        "offline",
        description="`offline` (hashed features, no download) or a sentence-transformers name or path.",
    )
    text: Literal["source", "described"] = Field(
        "source",
        description="What a sentence-transformers model reads; `described` puts operators and shapes first.",
    )
    batch_size: int = Field(256, ge=1, description="Texts embedded at once.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the embedder runs.")
