r"""Claim: how many answers to KernelBench are correct, and how fast, against each baseline.

    python benchmarks/kernelbench_table.py JUDGED.parquet                       # of stored evaluations
    python benchmarks/kernelbench_table.py JUDGED.jsonl --evaluator THEIRS.jsonl --answers ANSWERS.jsonl.gz \
        --keep JUDGED.parquet

JUDGED holds the judge's evaluations (`carryover.py judge`), THEIRS the verdicts of KernelBench's evaluator
(`kernelbench_verdicts.py`). Prints pass@1 under each tolerance and by the evaluator, fast_p against four
baselines, the precision of correct answers, and every answer on which `field` and the evaluator differ.
`--keep` writes everything into one Parquet file, with the answers themselves.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernel_core.evaluation.statistics import share
from kernel_core.records import Baseline, Evaluation

BASELINES: tuple[Baseline, ...] = ("fair", "eager", "eager_tf32", "compile", "compile_tf32")
THRESHOLDS = (1.0, 1.2, 1.5, 2.0)
KINDS = {
    "convolution": ("conv",),
    "product": ("matmul", "gemm", "matrix", "bmm", "matvec", "linear"),
    "attention": ("attention",),
    "norm": ("norm",),
    "pooling": ("pool",),
    "loss": ("loss",),
    "scan": ("cumsum", "cumprod"),
    "reduction": ("reduction", "softmax", "argmax", "argmin"),
}
"""Words of a problem's name, first match; all others are elementwise."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("judged", type=Path)
    parser.add_argument("--evaluator", type=Path, help="verdicts of KernelBench's evaluator")
    parser.add_argument("--answers", type=Path, help="the texts that were judged, for --keep")
    parser.add_argument("--keep", type=Path, help="write one Parquet file of what was read")
    arguments = parser.parse_args()
    frame = _read(arguments.judged)
    if arguments.evaluator:
        theirs = pd.read_json(arguments.evaluator, lines=True)[["problem", "sample", "correct", "metadata"]]
        theirs = theirs.rename(columns={"correct": "evaluator", "metadata": "evaluator_says"})
        frame = frame.drop(columns=["evaluator", "evaluator_says"], errors="ignore")
        frame = frame.merge(theirs, on=["problem", "sample"], how="left")
    if arguments.answers:
        lines = gzip.decompress(arguments.answers.read_bytes()).decode().splitlines()
        frame = frame.merge(pd.DataFrame(map(json.loads, lines)), on=["problem", "sample"], how="right")
        frame["verdict"] = frame["verdict"].fillna("not judged")
        frame["evaluation"] = frame["evaluation"].fillna("")
    if arguments.keep:
        frame.to_parquet(arguments.keep, index=False, compression="zstd")
    whole = len(frame)
    frame = frame[frame["verdict"] != "not judged"].copy()
    print(f"{len(frame)} of {whole} answers are judged; the others are not in the figures\n")
    frame["evaluation"] = [_evaluation(text) for text in frame["evaluation"]]
    frame["level"] = frame["problem"].str.extract(r"(level\d)")
    frame["kind"] = frame["problem"].map(_kind)
    groups = dict(list(frame.groupby("level")))
    groups |= {f"{level} {kind}": part for (level, kind), part in frame.groupby(["level", "kind"])}
    print(pd.DataFrame([_correct_row(name, part) for name, part in groups.items()]).to_string(index=False))
    for level in sorted(frame["level"].unique()):
        for name, part in groups.items():
            if name.startswith(level):
                print(f"\n{name}: {len(part)} answers to {part['problem'].nunique()} problems")
                print(pd.DataFrame(_speed_rows(part)).to_string(index=False))
    _print_differences(frame)


def _read(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["evaluation"] = json.dumps(row["evaluation"]) if row.get("evaluation") else ""
    return pd.DataFrame(rows).drop(columns=["speedup"], errors="ignore")


def _evaluation(text: str) -> Evaluation | None:
    return Evaluation.model_validate_json(text) if text else None


def _kind(problem: str) -> str:
    name = problem.rpartition("/")[2].lower()
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "elementwise")


def _figure(part: pd.DataFrame, holds: Callable[[pd.Series[Any]], bool]) -> str:
    """Return the share of answers in per cent with its 95 % interval over problems."""
    by_problem = [
        float(sum(holds(row) for _, row in answers.iterrows())) / len(answers)
        for _, answers in part.groupby("problem")
    ]
    estimate = share(by_problem)
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f}"
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.0f}-{100 * estimate.high:.0f})"


def _passes(tolerance: str) -> Callable[[pd.Series[Any]], bool]:
    return lambda row: row["evaluation"] is not None and tolerance in row["evaluation"].tolerances_passed


def _correct_row(name: str, part: pd.DataFrame) -> dict[str, Any]:
    precisions = [one.product_precision or "none" for one in part["evaluation"] if one and one.correct]
    row: dict[str, Any] = {"group": name, "problems": part["problem"].nunique(), "answers": len(part)}
    for tolerance in ("measured", "field", "strict"):
        row[tolerance] = _figure(part, _passes(tolerance))
    if "evaluator" in part:
        asked = part[part["evaluator"].notna()]
        row["evaluated"] = len(asked)
        row["evaluator"] = _figure(asked, lambda row: bool(row["evaluator"])) if len(asked) else ""
        row["field there"] = _figure(asked, _passes("field")) if len(asked) else ""
    return row | pd.Series(precisions, dtype=str).value_counts().to_dict()


def _speed_rows(part: pd.DataFrame) -> list[Mapping[str, Any]]:
    rows = []
    for baseline in BASELINES:
        row: dict[str, Any] = {"against": baseline}
        for threshold in THRESHOLDS:
            row[f"fast_{threshold:g}"] = _figure(part, _faster(baseline, threshold))
        known = [one.speedup_over(baseline) for one in part["evaluation"] if one and one.correct]
        timed = pd.Series([value for value in known if value is not None], dtype=float)
        row["timed"], row["median"] = len(timed), round(timed.median(), 2) if len(timed) else None
        rows.append(row)
    return rows


def _faster(baseline: Baseline, threshold: float) -> Callable[[pd.Series[Any]], bool]:
    def holds(row: pd.Series[Any]) -> bool:
        evaluation = row["evaluation"]
        return bool(
            evaluation and evaluation.correct and (evaluation.speedup_over(baseline) or 0.0) > threshold
        )

    return holds


def _print_differences(frame: pd.DataFrame) -> None:
    if "evaluator" not in frame:
        return
    asked = frame[frame["evaluator"].notna()]
    passes = asked.apply(_passes("field"), axis=1)
    agree = passes == asked["evaluator"].astype(bool)
    print(f"\nfield and the evaluator agree on {int(agree.sum())} of {len(asked)} answers")
    for _, row in asked[~agree].iterrows():
        evaluation = row["evaluation"]
        ours = (
            f"{row['verdict']} {evaluation.tolerances_passed} {evaluation.feedback[:150]}"
            if evaluation
            else "–"
        )
        print(f"- {row['problem']} {row['sample']}: {ours} | {str(row['evaluator_says'])[:200]}")


if __name__ == "__main__":
    main()
