"""Problems from files: our own suite, a folder, a KernelBench checkout or its Hugging Face set."""

from __future__ import annotations

import difflib
import itertools
import os
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernel_core.config import ProblemsConfig
from kernel_core.data_folder import DATA
from kernel_core.errors import ConfigError, NotAProblem, NotFound, SourceUnavailable
from kernel_core.problems.file_splits import file_split
from kernel_core.problems.generators import ENDLESS_SUITES, WITHOUT_LIMIT, generator_of
from kernel_core.problems.source import at_precision, halved, parse_problem, resize
from kernel_core.problems.splits import Split
from kernel_core.records import Problem

__all__ = [
    "load_dojo",
    "load_file",
    "load_folder",
    "load_kernelbench",
    "load_problems",
    "parse_problem",
    "resize",
]

KERNELBENCH_DATASET = "ScalingIntelligence/KernelBench"
KERNELBENCH_LEVELS = (1, 2, 3, 4)
_SNAPSHOT = "snapshot:"
_HALVINGS = {"half": 1, "quarter": 2}
"""Number of times that `problems.sizes` halves the largest size."""
_DOJO_FOLDER = DATA / "problems"
_SPLITS: tuple[Split, ...] = ("train", "validation", "held_out")


def load_file(path: str | os.PathLike[str], *, suite: str = "file") -> Problem:
    """The problem in one Python file; its id is `suite/stem`.

    Raises `NotFound` without such a file or leave to read it, and `NotAProblem` when it holds none.
    """
    file = Path(path)
    return parse_problem(_text(file), id=f"{suite}/{file.stem}", suite=suite)


def load_folder(folder: str | os.PathLike[str], *, suite: str | None = None) -> list[Problem]:
    """Every `*.py` directly in a folder, by name; names that start with `_` are left out.

    The suite is the folder's name unless given. Raises `NotFound` for a missing or empty folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotFound(f"no folder {root}; give a folder of problem files in KernelBench's format")
    files = sorted((path for path in root.glob("*.py") if not path.name.startswith("_")), key=_file_order)
    if not files:
        raise NotFound(f"no problem files (*.py) in {root}")
    return [load_file(path, suite=suite or root.resolve().name) for path in files]


def load_dojo() -> list[Problem]:
    """Our own hand-written suite under `data/problems/`: an evaluation suite, held out as a whole."""
    return load_folder(_DOJO_FOLDER, suite="dojo")


def load_kernelbench(levels: Iterable[int], root: str | None = None) -> list[Problem]:
    """KernelBench's problems of some levels, from a checkout or else from the Hugging Face set.

    `root` (or `$KERNELBENCH_ROOT`) is a checkout, or the folder in it that holds `level1/`.
    Raises `NotFound` for a missing level folder, `SourceUnavailable` when the set cannot be reached.
    """
    wanted = tuple(levels)
    unknown = [level for level in wanted if level not in KERNELBENCH_LEVELS]
    if unknown:
        raise ConfigError(f"KernelBench has no level {unknown[0]}; its levels: 1, 2, 3, 4")
    root = root or os.environ.get("KERNELBENCH_ROOT")
    if root is not None:
        return [problem for level in wanted for problem in _read_checkout_level(Path(root), level)]
    return [problem for level in wanted for problem in _read_hugging_face_level(level)]


def load_problems(config: ProblemsConfig) -> list[Problem]:
    """The problems a config names; the same config gives the same problems in the same order.

    Where `limit` is smaller than a suite of files, `seed` chooses which, and their order stays. A mixture
    gives each suite's share of `limit`, one suite after another.
    """
    if config.mix:
        return [problem for part in shares_of(config) for problem in load_problems(part)]
    times = _HALVINGS.get(config.sizes, 0)
    return [at_precision(halved(problem, times), config.precision) for problem in _named(config)]


def check_problems(config: ProblemsConfig) -> None:
    """Load one problem of each suite: raises `load_problems`'s errors where it or a family is not there."""
    for share in shares_of(config) if config.mix else [config]:
        load_problems(share.model_copy(update={"limit": 1}))


def shares_of(config: ProblemsConfig) -> list[ProblemsConfig]:
    """A mixture as one config a suite, each with its share of `limit`; without shares of none."""
    if config.families:
        raise ConfigError("problems.families narrows one suite; leave it out beside problems.mix")
    total = config.limit or WITHOUT_LIMIT
    weights = [part.weight for part in config.mix]
    ends = [round(total * sum(weights[: index + 1]) / sum(weights)) for index in range(len(weights))]
    counts = [end - start for start, end in itertools.pairwise((0, *ends))]
    return [
        config.model_copy(update={"suite": part.suite, "mix": (), "limit": count})
        for part, count in zip(config.mix, counts, strict=True)
        if count
    ]


def _named(config: ProblemsConfig) -> list[Problem]:
    if config.suite in ENDLESS_SUITES:
        return _endless(config)
    if config.suite == "dojo":
        if config.split in ("train", "validation"):
            raise ConfigError(
                f"problems.split={config.split}: the dojo suite is for evaluation and all of it is held out; "
                "set problems.split=held_out, or problems.suite=generated"
            )
        problems = load_dojo()
    elif config.suite == "kernelbench":
        problems = load_kernelbench(config.levels)
    elif config.suite.startswith(_SNAPSHOT):
        from kernel_core.problems.collected import load_snapshot_problems  # Parquet takes a while to import

        problems = load_snapshot_problems(config.suite.removeprefix(_SNAPSHOT))
    elif Path(config.suite).is_dir():
        problems = load_folder(config.suite)
    elif config.suite.endswith(".py"):
        problems = [load_file(config.suite)]
    else:
        raise NotFound(
            f"no suite {config.suite!r}; give dojo, generated, modules, graphs, kernelbench, "
            "snapshot:FOLDER, or the path of a folder or file"
        )
    return _chosen(problems, config)


def _endless(config: ProblemsConfig) -> list[Problem]:
    generator = generator_of(config.suite)
    _check_families(config.families, generator.families)
    count = config.limit or WITHOUT_LIMIT
    if config.split != "all":
        return [made.problem for made in generator.draw(config.split, count, config.seed, config.families)]
    only_reserved = bool(config.families) and set(config.families) <= generator.reserved
    splits = _SPLITS[-1:] if only_reserved else _SPLITS
    shares = [count // len(splits) + (position < count % len(splits)) for position in range(len(splits))]
    return [
        made.problem
        for split, share in zip(splits, shares, strict=True)
        for made in generator.draw(split, share, config.seed, config.families)
    ]


def _chosen(problems: list[Problem], config: ProblemsConfig) -> list[Problem]:
    if config.file_split != "all":
        problems = [problem for problem in problems if file_split(problem.id) == config.file_split]
        if not problems:
            raise NotFound(
                f"problems.file_split={config.file_split} leaves no problem of {config.suite}; "
                "set problems.file_split=all, or add files"
            )
    if config.families:
        _check_families(config.families, sorted({problem.family for problem in problems}))
        problems = [problem for problem in problems if problem.family in config.families]
    if config.limit is None or config.limit >= len(problems):
        return problems
    positions = random.Random(config.seed).sample(range(len(problems)), config.limit)
    return [problems[position] for position in sorted(positions)]


def _check_families(wanted: Sequence[str], known: Sequence[str]) -> None:
    for family in wanted:
        if family not in known:
            near = difflib.get_close_matches(family, known, n=1, cutoff=0.0)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"no problem family {family!r}: {hint}known here: {', '.join(known)}")


def _read_checkout_level(root: Path, level: int) -> list[Problem]:
    for folder in (root / "KernelBench" / f"level{level}", root / f"level{level}"):
        if folder.is_dir():
            files = sorted(folder.glob("*.py"), key=_file_order)
            return [_kernelbench_problem(_text(file), file.stem, level) for file in files]
    raise NotFound(
        f"no KernelBench/level{level} and no level{level} in {root}; "
        "KERNELBENCH_ROOT names a checkout of KernelBench"
    )


def _read_hugging_face_level(level: int) -> list[Problem]:
    import datasets  # seconds to import, and only this road needs it

    try:
        rows = datasets.load_dataset(KERNELBENCH_DATASET, split=f"level_{level}")
    except (OSError, ValueError) as error:
        raise SourceUnavailable(
            f"could not load {KERNELBENCH_DATASET} (level_{level}) from the Hugging Face hub: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}; "
            "go online, or set KERNELBENCH_ROOT to a checkout of KernelBench"
        ) from error
    return [_kernelbench_problem(row["code"], row["name"].removesuffix(".py"), level) for row in rows]


def _kernelbench_problem(source: str, name: str, level: int) -> Problem:
    return parse_problem(
        source, id=f"kernelbench/level{level}/{name}", suite="kernelbench", name=name, level=level
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        wanted = "give the path of a Python file in KernelBench's format"
        raise NotFound(f"no problem file {file}; {wanted}") from error
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NotAProblem(f"{file} is not UTF-8 text: {error}") from error


def _file_order(path: Path) -> tuple[int, str]:
    """KernelBench numbers its files: `2_x.py` comes before `10_x.py`."""
    number = re.match(r"\d+", path.name)
    return (int(number[0]) if number else 0, path.name)
