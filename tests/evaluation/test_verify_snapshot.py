"""Verified columns say what our judge found; a verification that was cut goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_core.config import GymConfig, IngestConfig, VerifyConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.errors import CallerError
from kernel_core.evaluation.verify_snapshot import verify_snapshot
from kernel_core.gym.contract.requests import Gym
from kernel_core.records import Verdict
from kernel_core.retrieval.index import best_exemplars
from kernel_core.store import Store

JUDGE = GymConfig(workers=1, trials=1, compile_gate=False)


@pytest.fixture(scope="module")
def gym(quick_gym: Gym) -> Gym:
    return quick_gym


def ingested(folder: Path) -> Store:
    """The kernels of one problem; this seed draws a chain of two inputs, whose kernels are judged fast."""
    snapshot = Store(folder / "snapshot")
    build_snapshot(IngestConfig(generator_rows=1, seed=5, decontaminate_against=()), snapshot)
    return snapshot


def test_each_kernel_gets_the_verdict_that_its_maker_knows(gym: Gym, tmp_path: Path) -> None:
    snapshot, work = ingested(tmp_path), Store(tmp_path / "verify")
    claimed = {row.id: row.claimed_correct for row in load_snapshot(snapshot)}
    part = verify_snapshot(VerifyConfig(gym=JUDGE, limit=2), snapshot, work, gym)
    assert part.judged == 2 and part.not_judged == {"beyond the limit": len(claimed) - 2}
    whole = verify_snapshot(VerifyConfig(gym=JUDGE), snapshot, work, gym)
    assert whole.judged == len(claimed) and whole.believed_and_wrong == 0
    lines = [line["exemplar"] for line in work.lines("verified.jsonl")]
    assert sorted(lines) == sorted(claimed)  # what was judged before is not judged again
    rows = load_snapshot(snapshot)
    assert {row.id: row.verified is Verdict.CORRECT for row in rows} == claimed
    assert all(gym.version in row.verified_by for row in rows)
    right = [row for row in rows if row.claimed_correct]
    assert all(row.predicted_speedup is not None and row.verified_speedup is None for row in right)
    assert best_exemplars(rows)[0].verified is Verdict.CORRECT


def test_a_snapshot_that_nothing_here_can_judge_is_refused_with_the_reasons(gym: Gym, tmp_path: Path) -> None:
    snapshot = ingested(tmp_path)
    config = VerifyConfig(gym=JUDGE, sources=("sakana",))
    with pytest.raises(CallerError, match="can be judged on cpu: 8 from another source"):
        verify_snapshot(config, snapshot, Store(tmp_path / "verify"), gym)
