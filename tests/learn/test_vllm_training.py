"""RL steps whose answers a real vLLM server writes, and a kill of that server in the middle of one."""

import contextlib
import threading

import psutil
import pyarrow.parquet as pq
from real_vllm import ON_CPU, PYTHON, needs_vllm

from kernel_core.config import (
    CurriculumConfig,
    GymConfig,
    PolicyConfig,
    ProblemsConfig,
    RolloutConfig,
    SamplerConfig,
    SamplingConfig,
    TrainConfig,
)
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy import SHIPPED
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

pytestmark = needs_vllm
STEPS, KILLED_AT = 6, 4


def test_steps_sample_from_the_server_and_its_death_loses_nothing(tmp_path, monkeypatch):
    for name, value in ON_CPU.items():
        monkeypatch.setenv(name, value)
    policy = PolicyConfig(lora_rank=8)
    config = TrainConfig(
        steps=STEPS,
        problems_per_step=2,
        group_size=4,
        lr=1e-3,
        problems=ProblemsConfig(limit=8, seed=5),
        policy=policy,
        sampler=SamplerConfig(kind="vllm", python=PYTHON, max_gap=0.005),
        rollout=RolloutConfig(turns=2, sampling=SamplingConfig(max_new_tokens=400)),
        curriculum=CurriculumConfig(only="correct", probe_every=3, probe_problems=2),
        gym=GymConfig(workers=2, compile_gate=False, trials=1),
    )
    store = Store(tmp_path)
    with contextlib.ExitStack() as stack:
        gym = stack.enter_context(open_gym(config.gym))
        trained = TorchPolicy.load(str(SHIPPED), policy)
        trainer = stack.enter_context(contextlib.closing(Trainer(config, store, trained, gym)))
        while trainer.step_number < KILLED_AT - 1:
            trainer.step()
        [server] = psutil.Process(trainer._sampler._server._place._process.pid).children()
        killer = threading.Timer(1.0, server.kill)
        killer.start()
        trainer.step()
        killer.join()
        assert not server.is_running(), "it was killed in the middle of the step"
        while not trainer.done:
            trainer.step()

    rows = list(store.lines("metrics.jsonl"))
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    assert all(row["publish/gap"] < 0.005 for row in rows[1:])
    assert rows[-1]["publish/moved"] > 0
    written_by = [_versions(store, step) for step in range(1, STEPS + 1)]
    assert all(len(versions) == 1 for versions in written_by)
    steps = [int(versions.pop().rpartition("@")[2]) for versions in written_by[1:]]
    assert steps == list(range(1, STEPS)), "each step's answers come from the weights of the step before"


def _versions(store, step):
    table = pq.read_table(store.path(f"turns/step-{step:06d}.parquet"))
    return set(table["policy_version"].to_pylist())
