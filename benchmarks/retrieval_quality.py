"""Claim: for held-out problems of known family the first exemplar is of the same family.

Problems of the generator's held-out split that have their family in the corpus, and paraphrases of these:
names, constants and the order of independent statements changed. Each embedder, dense and hybrid, and the
random choice as a floor. A sentence-transformers model takes part when its name or folder is given.

    python benchmarks/retrieval_quality.py --write
    python benchmarks/retrieval_quality.py --models BAAI/bge-small-en-v1.5 --device cuda --write
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from paraphrase import paraphrase
from report import Report
from tiny_model import make_tiny_model

from kernel_core.config import IndexConfig, IngestConfig, RetrievalConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.evaluation.statistics import share
from kernel_core.problems.generate import generate
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem
from kernel_core.retrieval.index import build_index
from kernel_core.retrieval.protocol import Neighbour
from kernel_core.retrieval.search import open_retriever
from kernel_core.store import Store

_DEPTH = 10
_COLUMNS = ("embedder", "text", "mode", "queries", "first of the family", "95 % interval", "MRR")
_MODES: tuple[Literal["dense", "hybrid", "random"], ...] = ("dense", "hybrid", "random")


def main() -> int:
    """Index one corpus by each embedder, ask it for each problem, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="problems in the corpus")
    parser.add_argument("--problems", type=int, default=300, help="held-out problems drawn")
    parser.add_argument("--models", nargs="*", default=[], help="sentence-transformers names or folders")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    chosen = f"--rows {arguments.rows} --problems {arguments.problems} --device {arguments.device}"
    models = f" --models {' '.join(arguments.models)}" if arguments.models else ""
    report = Report("retrieval_quality", chosen + models, __doc__)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        snapshot = Store(folder / "run" / "snapshot")
        build_snapshot(IngestConfig(generator_rows=arguments.rows, decontaminate_against=("dojo",)), snapshot)
        known = {row.family for row in load_snapshot(snapshot)}
        drawn = [made.problem for made in generate("held_out", arguments.problems, seed=17)]
        problems = [problem for problem in drawn if problem.family in known]
        tiny = make_tiny_model(folder / "tiny", [row.reference_code for row in load_snapshot(snapshot)])
        rows = []
        for embedder in ("offline", str(tiny), *arguments.models):
            name = "tiny, untrained" if embedder == str(tiny) else embedder
            for text in ("source",) if embedder == "offline" else ("source", "described"):
                index = Store(folder / f"run-{len(rows)}" / "index")
                config = IndexConfig(embedder=embedder, text=text, device=arguments.device)
                build_index(config, snapshot, index)
                rows += [[name, text, *line] for line in _asked(index, problems, arguments.device)]
    title = f"{len(problems)} held-out problems, {len(known)} families in the corpus"
    report.table(title, _COLUMNS, rows)
    report.note(
        "`tiny, untrained` is a sentence-transformers model with random weights, built on the spot: it shows "
        "that the road for such models works, and what a model is worth that has learned nothing."
    )
    report.finish(arguments.write)
    return 0


def _asked(index: Store, problems: Sequence[Problem], device: str) -> list[list[str]]:
    rewritten = [_rewritten(problem) for problem in problems]
    lines = []
    for mode in _MODES:
        retriever = open_retriever(index, device=device, config=RetrievalConfig(mode=mode))
        for label, queries in (("as drawn", problems), ("paraphrased", rewritten)):
            ranks = [
                _rank(found, problem.family)
                for problem, found in zip(queries, retriever.search_many(queries, _DEPTH), strict=True)
            ]
            first = share([float(rank == 1) for rank in ranks])
            mrr = float(np.mean([1 / rank if rank else 0.0 for rank in ranks]))
            lines.append(
                [mode, label, f"{first.value:.1%}", f"{first.low:.1%} to {first.high:.1%}", f"{mrr:.3f}"]
            )
    return lines


def _rank(found: Sequence[Neighbour], family: str) -> int:
    """Place of the first neighbour of the family, from 1; 0 if there is none."""
    families = [neighbour.exemplar.family for neighbour in found]
    return families.index(family) + 1 if family in families else 0


def _rewritten(problem: Problem) -> Problem:
    source = paraphrase(problem.source, random.Random(problem.id))
    return parse_problem(source, id=f"{problem.id}-rewritten", suite="rewritten", family=problem.family)


if __name__ == "__main__":
    sys.exit(main())
