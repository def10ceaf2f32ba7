"""Claim: how many references a second an embedder takes, on a CPU or a GPU.

Needs no more than torch, transformers, sentence-transformers and what `kernel_core` imports for vectors
(numpy, pydantic, pyarrow, fsspec), so that it runs on a bare GPU host with a model's folder.

    python benchmarks/embed_speed.py --embedder offline --write
    python benchmarks/embed_speed.py --embedder FOLDER_OR_NAME --device cuda --batch-size 1024 --write
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from report import Report
from synthetic_programs import Spelling, draw_programs, spell

from kernel_core.retrieval.describe import TextKind, text_for
from kernel_core.retrieval.index import open_embedder

ROWS = 48_777


def main() -> int:
    """Embed so many references, print and write the rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--embedder", default="tiny", help="`offline`, `tiny`, a name or a folder")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    chosen = (
        f"--embedder {arguments.embedder} --rows {arguments.rows} --batch-size {arguments.batch_size} "
        f"--device {arguments.device}"
    )
    report = Report("embed_speed", chosen, __doc__)
    programs = enumerate(draw_programs(arguments.rows, seed=6))
    texts = [spell(program, Spelling(at, at, at, at)).reference for at, program in programs]
    kinds: tuple[TextKind, ...] = ("source",) if arguments.embedder == "offline" else ("source", "described")
    described = {kind: _described(kind, texts) for kind in kinds}
    with tempfile.TemporaryDirectory() as scratch:
        name = arguments.embedder
        if name == "tiny":
            from tiny_model import make_tiny_model

            name = str(make_tiny_model(Path(scratch), texts))
        embedder = open_embedder(name, arguments.device, arguments.batch_size, texts=texts)
        embedder.embed(texts[: arguments.batch_size])  # warm
        rows = []
        for kind, (written, seconds_to_write) in described.items():
            started = time.perf_counter()
            embedder.embed(written)
            seconds = time.perf_counter() - started
            rate = f"{len(texts) / seconds:,.0f}"
            row = [kind, f"{len(texts):,}", f"{seconds_to_write:.1f}", f"{seconds:.1f}", rate]
            print(arguments.embedder, *row, flush=True)
            rows.append([arguments.embedder, *row])
    columns = ("embedder", "text", "references", "s to write, all cores", "s to embed", "embedded/s")
    report.table(f"on {arguments.device}", columns, rows)
    report.finish(arguments.write, f"_{arguments.device}")
    return 0


def _described(kind: TextKind, texts: list[str]) -> tuple[list[str], float]:
    """The texts that are embedded, and how long writing them took on all cores."""
    started = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        written = list(pool.map(partial(text_for, kind), texts, chunksize=256))
    return written, time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
