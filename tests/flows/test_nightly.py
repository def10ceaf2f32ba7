"""Nights with real policies and the real judge: once each, a trend, a planted regression caught, no other."""

import datetime

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from server_pages import all_pages
from watched_run import LITTLE, MUCH, SETTINGS, WATCHED, publish

from flows.nightly import nightly
from kernel_core.config import EvaluateConfig
from kernel_core.errors import NotFound, Regressed
from kernel_core.runs.configure import build
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run

NIGHTS, PLANTED = 24, 16


def night(number):
    return datetime.datetime(2026, 1, number, 3, tzinfo=datetime.UTC)


@pytest.mark.slow
def test_twenty_four_nights_find_the_planted_regression_and_no_other(prefect_api, tmp_path):
    config = build(EvaluateConfig, SETTINGS)
    failed = []
    with judges_kept():
        for number in range(1, NIGHTS + 1):
            publish(tmp_path, number, MUCH if number == PLANTED else LITTLE)
            try:
                nightly(config, watch=(WATCHED,), root=str(tmp_path), night=night(number))
            except Regressed as error:
                failed.append(number)
                assert "correct_rate" in str(error)
        again = Run(str(tmp_path), "nightly")
        before = again.store.names()
        publish(tmp_path, NIGHTS + 1, MUCH)
        nightly(config, watch=(WATCHED,), root=str(tmp_path), night=night(NIGHTS))
    assert again.store.names() == before, (
        "a night that is done is not done again, even with a newer checkpoint"
    )
    assert failed == [PLANTED]
    trend = pq.read_table(tmp_path / "nightly" / "trends" / f"{WATCHED}.parquet").to_pylist()
    assert [row["night"] for row in trend] == [
        night(n).strftime("%Y-%m-%dT0300") for n in range(1, NIGHTS + 1)
    ]
    assert [row["checkpoint"] for row in trend] == [f"step-{n:06d}" for n in range(1, NIGHTS + 1)]
    assert [n for n, row in enumerate(trend, start=1) if row["regressed"]] == [PLANTED]
    assert not any(row["missed_before"] for row in trend)
    print("correct rates:", [round(row["correct_rate"], 2) for row in trend])
    with get_client(sync_client=True) as client:
        keys = {artifact.key for artifact in all_pages(client.read_artifacts)}
    assert {f"nightly-{WATCHED}", f"nightly-{WATCHED}-change"} <= keys


def test_a_watched_run_that_is_missing_does_not_keep_the_others_from_their_night(prefect_api, tmp_path):
    watch = ("missing", "gone")
    with pytest.raises(NotFound, match=r"0 of 2 .*missing: no run 'missing'.*gone: no run 'gone'"):
        nightly(build(EvaluateConfig, SETTINGS), watch=watch, root=str(tmp_path), night=night(1))
