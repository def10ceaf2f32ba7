"""Early warnings ring when they should, once, and not on a healthy run."""

import pytest

from kernel_core.learn.alarms import alarms_after, is_junk
from kernel_core.report.run_page import write_report
from kernel_core.store import Store

KERNEL = """
import torch, triton
import triton.language as tl
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.maximum(x, 0.0), mask=offs < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
HEALTHY = {
    "batch/entropy": 0.5,
    "update/num_answer_tokens": 100,
    "update/sampler_kl": 0.001,
    "update/num_rows": 100,
    "update/num_rejected_rows": 10,
    "update/num_mismatched_rows": 5,
    "update/num_optimiser_steps": 1,
    "kernel/format_rate": 0.9,
    "kernel/junk_rate": 0.0,
    "kernel/truncated_rate": 0.1,
    "kernel/hack_rate": 0.02,
}


def history(*changes):
    """Six healthy steps, and then one step for each change."""
    rows = [HEALTHY] * 6 + [HEALTHY | change for change in changes]
    return [{"step": 0, "stage": "a"}] + [{"step": i + 1, "stage": "a", **row} for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("collapse", {"batch/entropy": 0.01}, "entropy"),
        ("collapse", {"kernel/format_rate": 0.1}, "well-formed"),
        ("junk", {"kernel/junk_rate": 0.9}, "junk"),
        ("junk", {"kernel/truncated_rate": 0.9}, "cut off"),
        ("hacks", {"kernel/hack_rate": 0.4}, "hacked"),
        ("drift", {"update/sampler_kl": 0.2}, "apart"),
        ("drift", {"update/num_rejected_rows": 90, "update/num_mismatched_rows": 90}, "rejected because"),
        ("idle", {"update/num_optimiser_steps": 0}, "no optimiser step"),
        ("idle", {"update/num_rejected_rows": 90}, "left out of the loss"),
    ],
)
def test_each_alarm_rings_once_and_says_why_and_what_to_do(kind, change, words):
    raised = [alarm for n in range(1, 12) for alarm in alarms_after(history(*[change] * 4)[:n])]
    assert [alarm.kind for alarm in raised] == [kind]
    assert words in raised[0].detail and raised[0].advice
    assert raised[0].step > 6


def test_a_healthy_run_rings_nothing():
    rows = history(*[HEALTHY] * 10)
    assert not [alarm for n in range(len(rows) + 1) for alarm in alarms_after(rows[:n])]


def test_a_policy_that_never_explored_rings_in_the_third_step():
    rows = [{"step": 0}] + [{"step": step, **HEALTHY, "batch/entropy": 0.008} for step in range(1, 5)]
    raised = [alarm for n in range(1, 6) for alarm in alarms_after(rows[:n])]
    assert [(alarm.kind, alarm.step) for alarm in raised] == [("collapse", 3)]
    assert "0.008 nats a token" in raised[0].detail


def test_an_alarm_that_went_away_rings_again():
    bad = {"update/sampler_kl": 0.2}
    rows = history(*[bad] * 3, *[HEALTHY] * 4, *[bad] * 3)
    assert [len(alarms_after(rows[:n])) for n in range(len(rows) + 1)].count(1) == 2


@pytest.mark.parametrize(
    ("text", "junk"),
    [
        ("", False),
        (KERNEL, False),
        (KERNEL * 2, False),
        ("tl.load(" * 200, True),
        ("汉字" * 50, True),
        ("x = 1\n", False),
    ],
)
def test_junk_is_told_from_kernels(text, junk):
    assert is_junk(text) is junk


def test_a_report_of_a_run_without_a_step_and_of_one_with_hostile_text_can_be_read(tmp_path):
    store = Store(tmp_path)
    write_report(store)
    assert "No step is done yet" in store.read("report.html").decode()
    for row in history({"event": "promoted to <b>", "alarm": "drift: <script>"}):
        store.append_line("metrics.jsonl", row)
    write_report(store)
    page = store.read("report.html").decode()
    assert "<svg" in page and "drift: &lt;script&gt;" in page and "promoted to &lt;b&gt;" in page


def test_a_report_says_which_speeds_are_predicted_and_for_which_gpu(tmp_path):
    store = Store(tmp_path)
    row = {"step": 1, "stage": "speed", "probe/correct_rate": 0.5, "probe/fast_1": 0.25}
    row |= {"kernel/speedup_geometric_mean": 2.0, "reward/mean": 0.1, "speedups": "predicted for H200"}
    store.append_line("metrics.jsonl", row)
    write_report(store)
    page = store.read("report.html").decode()
    assert "faster than the reference<b>25 → 25 %</b><span class=quiet>validation problems, predicted" in page
    assert "correct<b>50 → 50 %</b><span class=quiet>validation problems</span>" in page
    for curve in ("faster than the reference", "geometric mean"):
        assert f"<!-- {curve}, predicted for H200 -->" in page
