"""The RL loop with every part real: it learns something, says what it did, and can be killed anywhere."""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.learn import checkpoint
from kernel_core.learn.loop import Trainer
from kernel_core.learn.problem_sampler import Practice
from kernel_core.policy.sampler import CopySampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import silent
from kernel_core.report.run_page import write_report
from kernel_core.store import Store

POLICY_FILES = ("turns", "evaluations")


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def run(config, store, taught, gym, progress=silent):
    trainer = Trainer(config, store, TorchPolicy.load(str(taught), config.policy), gym, None, progress)
    reports = []
    while not trainer.done:
        reports.append(trainer.step())
    return trainer, reports


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def without_clocks(rows):
    return [
        {k: v for k, v in row.items() if not k.startswith("seconds") and not k.endswith("_per_s")}
        for row in rows
    ]


def tables_of(store):
    """Every row of every table."""
    return {
        f"{folder}/{name}": without_clocks(
            pq.read_table(io.BytesIO(store.read(f"{folder}/{name}"))).to_pylist()
        )
        for folder in POLICY_FILES
        for name in store.names(folder)
    }


def everything(store, policy):
    """What must not depend on whether a run was disturbed."""
    return {
        "metrics": without_clocks(store.lines("metrics.jsonl")),
        "checkpoints": list(store.lines("checkpoints.jsonl")),
        "tables": tables_of(store),
        "weights": weights_of(policy).tolist(),
    }


def _same_conversation(one, other):
    return (one["problem_id"], one["trajectory"]) == (other["problem_id"], other["trajectory"])


@pytest.fixture(scope="module")
def undisturbed(train_config, taught, gym, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    trainer, reports = run(train_config, store, taught, gym)
    return store, trainer, reports


def test_a_step_says_what_it_did(undisturbed, train_config):
    store, _, reports = undisturbed
    assert [report.step for report in reports] == [1, 2, 3]
    first = reports[0]
    assert (first.stage, first.event.kind, first.event.to_stage) == ("format", "promoted", "speed")
    _, *rows = store.lines("metrics.jsonl")
    verdicts = [share for key, share in rows[0].items() if key.startswith("verdict/")]
    assert sum(verdicts) == pytest.approx(1.0)
    assert rows[0]["batch/num_sampled_tokens"] > 0
    assert {f"seconds/{phase}" for phase in ("sample", "judge", "update", "checkpoint")} <= set(rows[0])
    assert ["probe/correct_rate" in row for row in rows] == [False, True, False]


def test_the_policy_learns_from_rewards_that_differ(undisturbed, taught, train_config):
    _, trainer, reports = undisturbed
    assert any(report.update.num_optimiser_steps for report in reports)
    start = TorchPolicy.load(str(taught), train_config.policy)
    assert not torch.equal(weights_of(trainer.policy), weights_of(start))
    assert trainer.policy.version != start.version


def test_every_file_is_there(undisturbed):
    store, _, _ = undisturbed
    steps = [row["step"] for row in store.lines("metrics.jsonl")]
    assert steps == [0, 1, 2, 3]
    assert [row["step"] for row in store.lines("checkpoints.jsonl")] == [0, 1, 2, 3]
    best = store.read_json("checkpoints/best.json")
    kept = {"best.json", "latest.json", "step-000002", "step-000003"}
    assert store.names("checkpoints") == sorted(kept | {best["folder"].rpartition("/")[2]})
    row = list(store.lines("metrics.jsonl"))[best["step"]]
    assert best["score"] == [row[f"probe/{name}"] for name in ("correct_rate", "fast_1")]
    for folder in POLICY_FILES:
        assert store.names(folder) == [f"step-{step:06d}.parquet" for step in (1, 2, 3)]
    assert store.names("tensorboard")


def test_metrics_name_rewards_verdicts_and_the_update(undisturbed):
    store, _, reports = undisturbed
    row = list(store.lines("metrics.jsonl"))[2]
    assert row["reward/mean"] == pytest.approx(reports[1].reward_mean)
    assert row["stage"] == "speed"
    assert row["speedups"] == reports[1].speedups == "predicted for H200"
    assert row["update/sampler_logprob_gap"] < 1e-3
    assert 0.0 < row["batch/entropy"] < 6.6  # log of the vocabulary
    assert row["kernel/correct_rate"] <= row["batch/pass_at_group"] <= 1.0
    for name in ("kernel/correct_rate", "verdict/malformed", "multiturn/turn_1/correct_rate", "probe/fast_1"):
        assert 0.0 <= row[name] <= 1.0


def test_tokens_a_second_and_the_checkpoint_are_measured_and_what_was_not_is_left_out(undisturbed):
    store, _, reports = undisturbed
    for row, report in zip(list(store.lines("metrics.jsonl"))[1:], reports, strict=True):
        learned = report.update.num_optimiser_steps > 0
        assert row["batch/sampled_tokens_per_s"] > 0 and row["seconds/checkpoint"] > 0
        assert [name in row for name in ("update/tokens_per_s", "update/entropy")] == [learned, learned]
        assert "update/reference_kl" not in row
    write_report(store)
    assert "tokens a second" in store.read("report.html").decode()


def test_the_table_of_turns_holds_texts_rewards_and_advantages(undisturbed, train_config):
    store, _, _ = undisturbed
    rows = pq.read_table(io.BytesIO(store.read("turns/step-000001.parquet"))).to_pylist()
    config = train_config
    assert len(rows) == config.problems_per_step * config.group_size * config.rollout.turns
    assert all(row["completion"] and row["messages"].startswith("[{") for row in rows)
    for row in rows:
        before = [r for r in rows if r["turn"] == row["turn"] - 1 and _same_conversation(r, row)]
        assert row["paid"] == pytest.approx(row["worth"] - sum(r["worth"] for r in before))
    for problem in {row["problem_id"] for row in rows}:
        for turn in (0, 1):
            group = [row["advantage"] for row in rows if row["problem_id"] == problem and row["turn"] == turn]
            assert sum(group) == pytest.approx(0.0, abs=1e-9)


WITH_PROBE = "two turns of eight conversations, and two answers of a probe"


@pytest.mark.parametrize(
    ("label", "occurrence"),
    [
        pytest.param("update", 2, marks=pytest.mark.exhaustive),
        pytest.param(WITH_PROBE, 1, marks=pytest.mark.slow),
        pytest.param(WITH_PROBE, 5, marks=pytest.mark.exhaustive),
    ],
)
def test_a_run_killed_in_any_phase_goes_on_as_if_nothing_had_happened(
    undisturbed, train_config, taught, gym, tmp_path, label, occurrence
):
    seen = 0

    def killer(reported, done, total):
        nonlocal seen
        seen += label == (WITH_PROBE if total == 2 * 8 + 2 else reported)
        if seen == occurrence:
            raise Killed

    store = Store(tmp_path)
    with pytest.raises(Killed):
        run(train_config, store, taught, gym, killer)
    torch.manual_seed(random.randrange(1 << 30))
    trainer, _ = run(train_config, store, taught, gym)
    expected_store, expected, _ = undisturbed
    assert everything(store, trainer.policy) == everything(expected_store, expected.policy)


def test_a_kill_between_the_tables_and_the_checkpoint_leaves_no_trace(
    undisturbed, train_config, taught, gym, tmp_path
):
    expected_store, expected, _ = undisturbed
    store = Store(shutil.copytree(expected_store.root, tmp_path / "run"))
    last = store.child(checkpoint.folder_of(3))
    last.remove("manifest.json")  # the metrics and tables of step 3 are there, its checkpoint is not
    trainer, reports = run(train_config, store, taught, gym)
    assert [report.step for report in reports] == [3]
    assert everything(store, trainer.policy) == everything(expected_store, expected.policy)


@pytest.mark.exhaustive
def test_an_error_in_a_step_is_forgotten_by_the_next_call(undisturbed, train_config, taught, gym, tmp_path):
    """A task retries on the same trainer: the half-done step must not count twice."""
    failing = True

    def progress(label, done, total):
        if failing and total == 2 * 8 + 2 and trainer.step_number == 1:
            raise OSError("the disk is full")

    store = Store(tmp_path)
    trainer = Trainer(
        train_config, store, TorchPolicy.load(str(taught), train_config.policy), gym, None, progress
    )
    trainer.step()
    with pytest.raises(OSError, match="disk is full"):
        trainer.step()
    failing = False
    while not trainer.done:
        trainer.step()
    expected_store, expected, _ = undisturbed
    assert everything(store, trainer.policy) == everything(expected_store, expected.policy)


def test_a_limit_of_minutes_ends_training_after_the_step_that_passes_it(brief_config, taught, gym, tmp_path):
    config = brief_config.model_copy(update={"minutes": 1e-9})
    _, reports = run(config, Store(tmp_path), taught, gym)
    assert [report.step for report in reports] == [1]


def test_a_probe_leaves_out_what_cannot_be_judged_and_counts_it(brief_config, policy, gym, tmp_path):
    lost = Practice.open(brief_config).probe_problems()[0].id

    class Failing:
        version = gym.version

        def judge(self, requests, progress=silent):
            if any(request.problem.id == lost for request in requests):
                raise GymUnavailable(f"the GPU has too little memory for {lost}")
            return gym.judge(requests, progress)

    config = brief_config.model_copy(update={"steps": 1})
    trainer = Trainer(config, Store(tmp_path), policy, Failing())
    report = trainer.step()
    before, row = Store(tmp_path).lines("metrics.jsonl")
    assert before["probe/num_left_out"] == 1
    assert (report.step, row["faults/num_left_out"]) == (1, config.group_size)


@pytest.mark.exhaustive
def test_answers_judged_fast_and_in_full_are_counted(train_config, taught, gym, tmp_path):
    first_stage, second_stage = train_config.curriculum.stages
    weights = first_stage.weights.model_copy(update={"speed": 0.0})
    stages = (first_stage.model_copy(update={"weights": weights}), second_stage)
    curriculum = train_config.curriculum.model_copy(update={"stages": stages})
    rollout = train_config.rollout.model_copy(update={"turns": 1})
    changes = {"judged_in_full": 0.5, "steps": 2, "curriculum": curriculum, "rollout": rollout}
    config = train_config.model_copy(update=changes)
    _, reports = run(config, Store(tmp_path), taught, gym)
    rows = list(Store(tmp_path).lines("metrics.jsonl"))[1:]
    assert [report.stage for report in reports] == ["format", "speed"]
    first, second = rows
    assert 0 < first["fast/num_compared"] < first["batch/num_judged"]
    assert first["fast/num_differing"] == reports[0].compared.num_differing
    assert "kernel/fast_1_rate" not in first and "kernel/fast_1_rate" in second
    assert "fast/num_compared" not in second


def test_the_learning_rate_rises_over_the_steps_of_warm_up(brief_config, taught, gym, tmp_path):
    config = brief_config.model_copy(update={"warmup": 2, "steps": 2})
    run(config, Store(tmp_path), taught, gym)
    rates = [row["optim/lr"] for row in list(Store(tmp_path).lines("metrics.jsonl"))[1:]]
    assert rates == [config.lr / 2, config.lr]


class Watched:
    """The real gym, and the requests that reach it."""

    def __init__(self, gym):
        self.gym, self.version, self.requests = gym, gym.version, []

    def judge(self, requests, progress=silent):
        self.requests += requests
        return self.gym.judge(requests, progress)


@pytest.mark.parametrize(
    ("speed", "stop_at", "timed"), [(0.5, None, True), (0.0, None, False), (0.0, 2.0, True)]
)
def test_only_a_reward_or_a_threshold_has_kernels_timed(
    brief_config, policy, gym, tmp_path, speed, stop_at, timed
):
    stage = brief_config.curriculum.stages[0]
    stage = stage.model_copy(update={"weights": stage.weights.model_copy(update={"speed": speed})})
    curriculum = brief_config.curriculum.model_copy(update={"stages": (stage,)})
    rollout = brief_config.rollout.model_copy(update={"stop_at_speedup": stop_at})
    changes = {"steps": 1, "curriculum": curriculum, "rollout": rollout}
    watched = Watched(gym)
    Trainer(brief_config.model_copy(update=changes), Store(tmp_path), policy, watched).step()
    practised = brief_config.problems_per_step * brief_config.group_size
    assert len(watched.requests) == practised + brief_config.curriculum.probe_problems
    assert sum(not request.timing for request in watched.requests) == (0 if timed else practised)


def test_a_problem_has_the_same_secret_inputs_in_every_step(brief_config, policy, gym, tmp_path):
    """So a kernel that is known is not judged again, in whichever step it comes back."""
    watched = Watched(gym)
    trainer = Trainer(brief_config.model_copy(update={"steps": 2}), Store(tmp_path), policy, watched)
    probes = brief_config.curriculum.probe_problems
    seeds = []
    trainer.step()
    seeds.append({(request.problem.id, request.seed) for request in watched.requests[:-probes]})
    watched.requests.clear()
    trainer.step()
    seeds.append({(request.problem.id, request.seed) for request in watched.requests[:-probes]})
    assert seeds[0] == seeds[1] and len(seeds[0]) == brief_config.problems_per_step


def test_greedy_sampling_is_refused(train_config, policy, gym, tmp_path):
    sampling = train_config.rollout.sampling.model_copy(update={"temperature": 0.0})
    rollout = train_config.rollout.model_copy(update={"sampling": sampling})
    with pytest.raises(ConfigError, match="greedy answers are all alike"):
        Trainer(train_config.model_copy(update={"rollout": rollout}), Store(tmp_path), policy, gym)


def test_the_best_change_is_not_a_thing_to_look_for(train_config, policy, gym, tmp_path):
    config = train_config.model_copy(update={"returns": "max"})
    with pytest.raises(ConfigError, match="set credit=absolute"):
        Trainer(config, Store(tmp_path), policy, gym)


def test_too_few_problems_for_a_step_are_refused(train_config, policy, gym, tmp_path):
    config = train_config.model_copy(update={"problems_per_step": 3})
    with pytest.raises(ConfigError, match="gives 2 problems"):
        Trainer(config, Store(tmp_path), policy, gym)


@pytest.mark.slow
def test_a_process_killed_with_sigkill_goes_on_bit_for_bit(undisturbed, train_config, taught, tmp_path):
    script = Path(__file__).with_name("resumable_run.py")
    config_file = tmp_path / "config.json"
    config_file.write_text(train_config.model_dump_json())
    command = [sys.executable, str(script), str(tmp_path / "run"), str(taught), str(config_file)]

    def start():
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=dict(os.environ)
        )

    for _ in range(2):
        process = start()
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.uniform(0.5, 15.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process = start()
    process.communicate()
    assert process.returncode == 0
    expected_store, expected, _ = undisturbed
    store = Store(tmp_path / "run")
    last = TorchPolicy.load(store.path(checkpoint.newest(store)), train_config.policy)
    assert everything(store, last) == everything(expected_store, expected.policy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learners", "device"),
    [
        (2, "cpu"),
        pytest.param(
            *(4, "cuda"),
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(torch.cuda.device_count() < 4, reason="needs four CUDA devices"),
            ],
        ),
    ],
)
def test_a_checkpoint_of_many_learners_goes_on_with_one(
    train_config, taught, gym, tmp_path, learners, device
):
    """The first two steps on several processes, the third alone: the policy of three steps on one."""
    policy = train_config.policy.model_copy(update={"device": device})
    alone = train_config.model_copy(update={"policy": policy})
    many = alone.model_copy(update={"learners": learners, "steps": 2})
    config_file = tmp_path / "config.json"
    config_file.write_text(many.model_dump_json())
    script = Path(__file__).with_name("learners_run.py")
    store = Store(tmp_path / "run")
    subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run"), str(taught), str(config_file)], check=True
    )
    assert [row["step"] for row in store.lines("checkpoints.jsonl")] == [0, 1, 2]
    trainer, reports = run(alone, store, taught, gym)
    assert [report.step for report in reports] == [3]
    assert trainer.done


def test_an_alarm_that_is_told_to_ends_the_run(brief_config, taught, gym, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_core.learn.alarms.WINDOW", 1)
    monkeypatch.setattr("kernel_core.learn.alarms.TRUNCATED_SHARE", -1.0)
    monkeypatch.setattr("kernel_core.learn.alarms.LEAST_ENTROPY", 0.0)  # eight tokens are known by heart
    config = brief_config.model_copy(update={"alarms_stop": ("junk",)})
    _, reports = run(config, Store(tmp_path), taught, gym)
    assert [[alarm.kind for alarm in report.alarms] for report in reports] == [["junk", "idle"]]
    assert list(Store(tmp_path).lines("metrics.jsonl"))[-1]["alarm"].startswith("junk: ")
    again, none = run(config, Store(tmp_path), taught, gym)
    assert (again.done, none) == (True, [])
    for change in ({"alarms_stop": ()}, {"lr": config.lr / 2}):
        policy, changed = TorchPolicy.load(str(taught), config.policy), config.model_copy(update=change)
        on = Trainer(changed, Store(tmp_path), policy, gym)
        assert (on.done, on.step_number) == (False, 1)


@pytest.mark.exhaustive
def test_a_copy_that_samples_trains_as_the_model_itself_does(
    undisturbed, train_config, taught, gym, tmp_path
):
    config = train_config.model_copy(update={"steps": 1})
    policy = TorchPolicy.load(str(taught), config.policy)
    begins, sampler = policy.version, CopySampler(policy)
    trainer = Trainer(config, Store(tmp_path), policy, gym, sampler=sampler)
    trainer.step()
    store, _, _ = undisturbed
    ours, theirs = (without_clocks(s.lines("metrics.jsonl"))[1] for s in (Store(tmp_path), store))
    assert ours["publish/gap"] < 1e-5 and sampler.version == policy.version != begins
    for name in ("reward/mean", "update/loss", "update/grad_norm"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
