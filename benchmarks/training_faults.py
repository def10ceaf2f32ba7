"""Claim: a learner, the sampler, a judge and a node are killed in turn, and every step is there exactly once.

    python benchmarks/training_faults.py [--python PYTHON] [--steps 8] [--full] [--cluster] [--write]

The shipped policy on CPUs, with adapters or (`--full`) with full weights: two learners (gloo), a sampler, and
judges on two Ray nodes. `--python` has vLLM, which samples then; without it a copy does. From the second step
on, each step loses one of them: the learner during the update, the others while answers are written and
judged. With full weights a vLLM server is killed once more, while it takes them. With `--cluster` learners
and sampler are on the Ray nodes too: three learners, so that they need both nodes. The node that is killed
has some of them, and another one joins ten seconds later. A step that raises is begun anew, as the task of a
run does. It is counted then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from machine import describe_machine

from kernel_core.config import TrainConfig
from kernel_core.errors import OurFault
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy import SHIPPED
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PROBLEMS, GROUP = 2, 4
IN_PUSH = "sampler in a push"
_JOIN = (str(Path(sys.executable).with_name("ray")), "start", "--block")


@dataclass
class Killer:
    """Kills one process in each step, once its phase has begun."""

    victims: dict[int, tuple[str, str, Callable[[], None]]]
    """By step: what is killed, the label of progress that it waits for, and how."""
    killed: dict[int, str] = field(default_factory=dict)
    step: int = 0

    def __call__(self, label: str, done: int, total: int) -> None:
        """The trainer's progress."""
        victim = self.victims.get(self.step)
        if victim is None or self.step in self.killed or label != victim[1]:
            return
        if label == "judge" and done < total:
            return
        self.killed[self.step] = victim[0]
        is_at_once = victim[0] == IN_PUSH  # the push follows soon
        threading.Timer(0.0 if is_at_once else 1.0, victim[2]).start()


def main() -> int:
    """Train and kill; the exit code is 1 where a step is missing, doubled, or from other weights."""
    arguments = _arguments()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    from ray.cluster_utils import Cluster

    begun = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    num_cpus = 3 if arguments.cluster else 1
    nodes = [cluster.add_node(num_cpus=num_cpus) for _ in range(2)]
    config = _config(arguments, cluster.address)
    rows, raised = [], dict[int, str]()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.callback(cluster.shutdown)

        def lose_node() -> None:
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
            if arguments.cluster:
                time.sleep(10.0)
                stack.callback(_joined(cluster.address, num_cpus).terminate)

        killer = Killer(
            {
                2: ("learner", "judge", lambda: _kill("distributed.member")),
                3: ("sampler", "sample", lambda: _kill("vllm.entrypoints", "remote_sampler")),
                4: ("judge", "sample", _kill_judge),
                5: ("Ray node", "sample", lose_node),
            }
        )
        store = Store(folder)
        if arguments.full and arguments.python:
            killer.victims[6] = IN_PUSH, "judge", lambda: _kill_in_push(store)
        gym = stack.enter_context(open_gym(config.gym))
        policy = TorchPolicy.load(str(SHIPPED), config.policy_here)
        trainer = stack.enter_context(
            contextlib.closing(Trainer(config, store, policy, gym, progress=killer))
        )
        while not trainer.done:
            killer.step, since = trainer.step_number + 1, time.monotonic()
            try:
                trainer.step()
            except OurFault as error:
                raised[killer.step] = f"{type(error).__name__}: {error}"[:300]
                print(f"step {killer.step} raised {raised[killer.step]}", flush=True)
                continue
            killed = killer.killed.get(killer.step, "–")
            again = "begun anew" if killer.step in raised else "went on"
            rows.append(f"| {killer.step} | {killed} | {again} | {time.monotonic() - since:.0f} |")
            print(rows[-1], flush=True)
        faults = _faults(store, config)
        taken_out = "; ".join(f"{one.place}: {one.reason}" for one in gym.taken_out) or "none"
    missed = [victim for step, (victim, *_) in killer.victims.items() if step not in killer.killed]
    faults += [f"the {victim} was never killed" for victim in missed]
    seconds = time.monotonic() - begun
    page = _page(config, rows, faults, taken_out, seconds)
    print(page)
    if arguments.write:
        (RESULTS / "training_faults.md").write_text(page)
    return 1 if faults else 0


def _joined(address: str, num_cpus: int) -> subprocess.Popen[bytes]:
    """A node that has joined the cluster; on a busy host Ray gives a join up after half a minute."""
    while True:
        node = subprocess.Popen([*_JOIN, "--address", address, f"--num-cpus={num_cpus}"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(timeout=60)
            continue
        return node


def _config(arguments: argparse.Namespace, address: str) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "steps": arguments.steps,
            "problems_per_step": PROBLEMS,
            "group_size": GROUP,
            "lr": 1e-4 if arguments.full else 1e-3,
            "learners": 3 if arguments.cluster else 2,
            "placement": {"cluster": "ray" if arguments.cluster else "local"},
            "problems": {"limit": 8, "seed": 5},
            "policy": {"lora_rank": None if arguments.full else 8},
            "sampler": {"kind": "vllm" if arguments.python else "copy", "python": arguments.python},
            "rollout": {"turns": 1},
            "curriculum": {"only": "correct", "probe_every": 100, "probe_problems": 2},
            "gym": {
                "cluster": "ray",
                "ray_address": address,
                "workers": 1,
                "trials": 1,
                "compile_gate": False,
            },
        }
    )


def _processes(words: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if words in " ".join(process.cmdline()):
                found.append(process)
    return found


def _kill(*words: str) -> None:
    """Kill the last process with one of these in its command, but no process that watches it."""
    watching = _processes("while_open")
    [one for word in words for one in _processes(word) if one not in watching][-1].kill()


def _kill_in_push(store: Store) -> None:
    """Stop the process of vLLM's engine, and kill it once the next weights are written."""
    engine = _processes("VLLM::EngineCore")[-1]
    engine.suspend()
    weights = Path(store.path("served/model.safetensors").removeprefix("file://"))
    before = weights.stat().st_mtime_ns
    while weights.stat().st_mtime_ns == before:
        time.sleep(0.1)
    time.sleep(1.0)
    engine.kill()


def _kill_judge() -> None:
    roots = _processes("gym.processes.fork_root")
    top = next(root for root in roots if root.parent() not in roots)
    top.children()[-1].kill()


def _faults(store: Store, config: TrainConfig) -> list[str]:
    """What is not as in an undisturbed run."""
    faults = []
    metrics = {row["step"]: row for row in store.lines("metrics.jsonl")}
    steps = [row["step"] for row in store.lines("metrics.jsonl")]
    if steps != list(range(config.steps + 1)):
        faults.append(f"metrics have the steps {steps}")
    newest = 0
    for step in range(1, config.steps + 1):
        table = pq.read_table(store.path(f"turns/step-{step:06d}.parquet"))
        if table.num_rows != PROBLEMS * GROUP:
            faults.append(f"step {step} has {table.num_rows} answers, wanted {PROBLEMS * GROUP}")
        versions = {str(one).rpartition("@")[2] for one in table["policy_version"].to_pylist()}
        if newest and versions != {str(newest)}:
            faults.append(
                f"the answers of step {step} come from the weights of {sorted(versions)}, wanted {newest}"
            )
        if metrics.get(step, {}).get("update/num_optimiser_steps"):  # none where all rewards are equal
            newest = step
    return faults


def _page(config: TrainConfig, rows: list[str], faults: list[str], taken_out: str, seconds: float) -> str:
    weights = f"adapters of rank {config.policy.lora_rank}" if config.policy.lora_rank else "full weights"
    sampler = "a vLLM server" if config.sampler.kind == "vllm" else "a copy that samples"
    on_nodes = "all" if config.placement.cluster == "ray" else "judges"
    lines = [
        "# Training while its parts are killed",
        "",
        f"    python {' '.join(sys.argv)}",
        "",
        f"Machine: {describe_machine()}. The shipped policy with {weights}, {config.learners} learners,",
        f"{sampler}; {on_nodes} on two Ray nodes; {PROBLEMS * GROUP} answers a step. {seconds:.0f} s in all.",
        "",
        "| step | killed in it | the step | seconds |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Judges taken out: {taken_out}.",
        f"Steps missing, doubled, short of answers or from other weights: {len(faults)}.",
        *(f"- {fault}" for fault in faults),
    ]
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="the Python of an environment with vLLM; without it a copy samples")
    parser.add_argument("--cluster", action="store_true", help="learners and sampler on the Ray nodes too")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--full", action="store_true", help="train full weights")
    parser.add_argument("--write", action="store_true", help="write docs/results/training_faults.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
