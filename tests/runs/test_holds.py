"""A checkpoint that waits for its promotion check is not removed by a training that goes on."""

from kernel_core.runs.holds import MOST, held, hold, release
from kernel_core.store import Store


def test_what_is_held_is_named_until_it_is_released(tmp_path):
    run = Store(str(tmp_path))
    assert held(run) == set()
    hold(run, "/somewhere/checkpoints/step-000002")
    assert held(run) == {"step-000002"}
    release(run, "checkpoints/step-000002")
    release(run, "checkpoints/step-000002")  # twice is once
    assert held(run) == set()


def test_checks_that_never_come_keep_few_checkpoints(tmp_path):
    run = Store(str(tmp_path))
    for step in range(1, MOST + 3):
        hold(run, f"checkpoints/step-{step:06d}")
    assert held(run) == {f"step-{step:06d}" for step in range(3, MOST + 3)}
