"""A second turn with feedback is asked, judged and set against a fresh answer, with the shipped policy."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMON = ("--suite", "dojo", "--device", "cpu")
SHORT = ("--max-new-tokens", "8", "--taught", str(ROOT / "data" / "policy"))


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_an_answer_that_failed_is_asked_again_in_both_ways_and_reported(tmp_path: Path) -> None:
    answers, judged, second, again = (
        str(tmp_path / name) for name in ("A.jsonl.gz", "J.jsonl", "B.jsonl.gz", "JB.jsonl")
    )
    first = ("--limit", "1", "--samples", "1", "--answers", answers)
    run("carryover", "answer", *COMMON, *SHORT, *first)
    run("carryover", "judge", *COMMON, *first, "--judged", judged)
    run(
        "carryover_retry",
        "ask",
        *COMMON,
        *SHORT,
        "--answers",
        answers,
        "--judged",
        judged,
        "--second",
        second,
    )
    rows = [json.loads(line) for line in gzip.decompress(Path(second).read_bytes()).splitlines()]
    assert [(row["first"], row["way"], row["sample"]) for row in rows] == [(0, "retry", 0), (0, "fresh", 1)]
    assert rows[0]["read"] > rows[1]["read"]
    run(
        "carryover",
        "judge",
        *COMMON,
        "--limit",
        "1",
        "--samples",
        "2",
        "--answers",
        second,
        "--judged",
        again,
    )
    report = run("carryover_retry", "report", "--second", second, "--judged", again)
    assert "dojo retry: 0 of 1 correct" in report and "all: retry less fresh +0.0%" in report
