"""Settings of problems, of a snapshot and of its index."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field

from kernel_core.config.base import Config, one_of_or_text
from kernel_core.config.gym import GymConfig

FamilyGroup = Literal["convolutions", "chains", "indexed", "scarce"]
"""Groups of families of the suite `modules`; `problems/modules/groups.py` lists them."""
GraphLevel = Literal["operators", "chains", "networks"]
"""Levels of the suite `graphs`: single operators, chains of them, small networks and functions."""
SUITES = ("generated", "modules", "graphs", "dojo", "kernelbench")


class WeightedSuite(Config):
    """One suite of a mixture."""

    suite: str = Field(..., description="As `problems.suite`.")
    weight: float = Field(1.0, gt=0, description="Sampling weight, relative to the other suites.")


class ProblemsConfig(Config):
    """Selection of problems."""

    FORM: ClassVar[tuple[str, ...]] = ("suite", "split", "limit", "levels", "families")
    suite: str = Field(
        "generated",
        description="`dojo` (shipped files), `generated`, `modules`, `graphs`, `kernelbench`, a folder, or "
        "`snapshot:FOLDER`.",
        json_schema_extra=one_of_or_text(*SUITES, other="folder or snapshot:FOLDER"),
    )
    mix: tuple[WeightedSuite, ...] = Field(
        (), description="Weighted suites in place of `suite`, such as [{suite: modules, weight: 3}]."
    )
    split: Literal["train", "validation", "held_out", "all"] = Field(
        "train",
        description="Split of a generated suite; `all`: RL practises and probes on all of a folder.",
    )
    file_split: Literal["all", "train", "validation", "held_out"] = Field(
        "all", description="Split of a suite of files, by a hash of each id: 80, 10 and 10 %."
    )
    levels: tuple[int, ...] = Field((1, 2), description="KernelBench levels.")
    families: tuple[str, ...] = Field((), description="Problem families; []: all families of the split.")
    limit: int | None = Field(
        None,
        ge=1,
        description="Number of problems, sampled from files or drawn, by `seed`; null: all files, or 512 "
        "draws.",
    )
    seed: int = Field(0, description="Random seed of generated problems.")
    sizes: Literal["own", "half", "quarter"] = Field(
        "own", description="`half` and `quarter` halve the largest size once or twice."
    )
    precision: Literal["own", "float16", "bfloat16"] = Field(
        "own", description="Dtype of floating-point inputs and weights; `own`: the problem's."
    )
    audited: bool = Field(
        True,
        description="Drop file problems that zeros, a constant or another input's output would solve.",
    )

    def at_most(self, limit: int) -> Self:
        """Return the selection with no more than so many problems."""
        return self.model_copy(update={"limit": min(self.limit or limit, limit)})


class IngestConfig(Config):
    """Corpus sources into one clean snapshot."""

    sources: tuple[str, ...] = Field(
        ("generator",),
        description="Names in data/sources.toml, file paths, `problems:FOLDER`, `package:NAME`.",
    )
    generator_rows: int = Field(2000, ge=0, description="Problems from the source `generator`.")
    modules_rows: int = Field(2000, ge=0, description="Problems from the source `modules`.")
    modules_more: dict[FamilyGroup, float] = Field(
        default_factory=dict,
        description="More problems of these groups of families, as a share of `modules_rows`: "
        "convolutions, chains, indexed, scarce.",
    )
    graphs_rows: int = Field(2000, ge=0, description="Problems from the source `graphs`.")
    graphs_levels: dict[GraphLevel, float] = Field(
        default_factory=dict,
        description="Shares of the levels in the source `graphs`: operators, chains, networks; {}: 0.45, "
        "0.33, 0.22.",
    )
    left_out: tuple[str, ...] = Field((), description="Families that the generators do not draw.")
    grades: Literal["all", "fastest"] = Field(
        "all",
        description="All kernels of a problem, or the fused and tuned ones alone.",
    )
    near_duplicate_threshold: float = Field(
        0.95, gt=0, le=1, description="Jaccard similarity of token shingles above which a row is a duplicate."
    )
    decontaminate_against: tuple[str, ...] = Field(
        ("dojo", "generated"),
        description="Remove evaluation problems of these suites and folders from the snapshot.",
    )
    seed: int = Field(0, description="Random seed.")


class VerifyConfig(Config):
    """Re-judging a snapshot's kernels."""

    gym: GymConfig = GymConfig()
    sources: tuple[str, ...] = Field((), description="Sources to judge; []: all.")
    limit: int | None = Field(None, ge=1, description="Judge at most the first N rows that can be judged.")
    seed: int = Field(0, description="Random seed of the judge's inputs.")


class IndexConfig(Config):
    """Embeddings and a nearest-neighbour index over a snapshot."""

    embedder: str = Field(
        "offline",
        description="`offline` (hashed features, no download), or a sentence-transformers name or path.",
    )
    text: Literal["source", "described"] = Field(
        "source",
        description="Text that a sentence-transformers model embeds; `described` prepends operators "
        "and shapes.",
    )
    batch_size: int = Field(256, ge=1, description="Texts per embedding batch.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Device of the embedder.")
