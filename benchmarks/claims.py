"""The seeds' claims in miniature: arms that differ in one setting, under equal budget, over several seeds.

    python benchmarks/claims.py --work /tmp/claims --stop-after 60      # again until it says "done"
    python benchmarks/claims.py --work /tmp/claims --report [--write]

Every arm begins with the same cold start, the shipped policy that was taught lazy kernels too, and gets the
same number of steps on the same problems; what differs is one line of `ARMS` (`arms.py`). Speed-ups and
own-kernel shares are predicted for an H200, and `--side-by-side` runs share the processors; on GPUs they are
measured, and each run has one to itself:

    python benchmarks/claims.py --work /tmp/claims --side-by-side 2 --set gym.device=cuda policy.device=cuda

A run that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from arms import ARMS, CLAIMS, Float8Sampler, ForgetfulGym
from claims_page import MACHINES, Runs
from held_out import held_out_evaluation
from machine import describe_machine

from flows.presets import preset
from kernel_core.config import IngestConfig, TrainConfig
from kernel_core.evaluation.scorecard import evaluate
from kernel_core.runs.configure import build, override
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PRESET = "learn"
BASE = (
    "rollout.exemplars=0",
    "sampler.kind=copy",
    "sampler.max_gap=0.3",
    "policy.dtype=bfloat16",
    "curriculum.rewards=dr_kernel",
    "curriculum.probe_every=15",
    "credit=absolute",
    "gamma=1.0",
    "estimator=trloo",
    "profile_rejection=corrected",
    "mismatch.band=0.01",
    "mismatch.veto=0.0001",
)
"""Dr. Kernel's rule whole: TRLOO, the profile in the reward and in rejection, mismatch rejection. The sampler
has the weights in bfloat16 and the trainer in float32, which leaves no conversation outside this band: one
that does has arms of its own."""
COLD_START = (
    "cold_start.steps=300",
    "cold_start.conversations=6000",
    "cold_start.lr=0.0005",
    "cold_start.mistake_share=0.35",
    "cold_start.naive_share=0.0",
    "cold_start.lazy_share=0.55",
)
"""On top of the shipped policy, which knows no lazy kernels."""
PAGE = """# {says}

Runs of {steps} steps from one cold start (the shipped policy, taught with {lazy:.0%} lazy kernels among first
answers: right, but PyTorch does all but the last operation). Speed-ups and shares of own kernels are {kind}.
Differences are the first arm's − the second's, paired by seed, with 95 % intervals of Student's t. Small runs
of a small policy: they say whether an effect is large here, not that it is absent elsewhere.

Before RL: {before}.

    python benchmarks/claims.py {chosen} --side-by-side {side_by_side}
    python benchmarks/claims.py {chosen} --report --write

Machine: {machine}.

{table}

![Curves of both arms]({page}.png)
"""


def main() -> None:
    """Start what is not finished, some side by side, or print the table."""
    arguments = _arguments()
    if arguments.arm:
        _one_run(arguments, arguments.arm, arguments.seeds[0])
        return
    if arguments.report:
        _report(arguments)
        return
    begun = time.monotonic()
    _cold_start(arguments)
    arms, runs = arguments.arms or list(ARMS), Runs(arguments.work, arguments.seeds)
    waiting = [(arm, seed) for seed in arguments.seeds for arm in arms if not runs.is_finished(arm, seed)]
    running: dict[int, subprocess.Popen[bytes]] = {}
    failed = 0
    while waiting or running:
        for place in range(arguments.side_by_side):
            if place in running and running[place].poll() is not None:
                failed += running.pop(place).returncode != 0
            in_time = not arguments.stop_after or time.monotonic() - begun < 60 * arguments.stop_after
            if place not in running and waiting:
                arm, seed = waiting.pop(0)
                if in_time:
                    running[place] = _start(arguments, arm, seed, place, time.monotonic() - begun)
        time.sleep(0.5)
    done = all(runs.is_finished(arm, seed) for arm in arms for seed in arguments.seeds)
    print("done" if done else "stopped in time; run the same command again", flush=True)
    if failed:
        sys.exit(f"{failed} runs ended with an error; see the logs under {arguments.work}")


def _cold_start(arguments: argparse.Namespace) -> None:
    """What all arms begin with, once."""
    from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.learn.cold_start.sft import build_conversations, cold_start, starting_policy
    from kernel_core.policy.torch_policy import TorchPolicy

    work, config = Store(arguments.work), _config(arguments, "base", 0)
    if work.child("evaluate").sealed():
        return
    build_snapshot(build(IngestConfig, preset("train", PRESET).get("ingest", {})), work.child("snapshot"))
    with open_gym(config.gym, work.child("judged")) as gym:
        if not work.child("cold_start").sealed():
            exemplars = load_snapshot(work.child("snapshot"))
            conversations = build_conversations(exemplars, gym, config.cold_start, config.rollout)
            policy = starting_policy(config.policy, conversations, config.cold_start.seed)
            report = cold_start(
                policy,
                conversations,
                config.cold_start,
                work.child("cold_start"),
                minibatch_tokens=config.minibatch_tokens,
            )
            print(report.model_dump_json(), flush=True)
        begins = TorchPolicy.load(work.child("cold_start"), config.policy)
        evaluate(
            held_out_evaluation(config, arguments.problems, 2), begins, gym, None, work.child("evaluate")
        )


def _start(
    arguments: argparse.Namespace, arm: str, seed: int, place: int, spent_s: float
) -> subprocess.Popen[bytes]:
    """On GPUs each has one of its own, and else its share of the processors."""
    folder = Path(arguments.work) / f"{arm}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    on_gpu = _config(arguments, arm, seed).gym.device == "cuda"
    threads = max(1, len(os.sched_getaffinity(0)) // arguments.side_by_side)
    left = [] if not arguments.stop_after else ["--stop-after", str(arguments.stop_after - spent_s / 60)]
    command = [sys.executable, __file__, "--work", arguments.work, "--seeds", str(seed), "--arm", arm, *left]
    command += ["--steps", str(arguments.steps), "--problems", str(arguments.problems)]
    command += ["--set", f"gym.workers={1 if on_gpu else threads}", *arguments.settings]
    with (folder / "log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if on_gpu:
            environment["CUDA_VISIBLE_DEVICES"] = str(place)
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _config(arguments: argparse.Namespace, arm: str, seed: int) -> TrainConfig:
    settings = [
        *BASE,
        *COLD_START,
        *ARMS[arm].settings,
        f"seed={seed}",
        *arguments.settings,
        f"steps={arguments.steps}",
    ]
    return build(TrainConfig, override(preset("train", PRESET)["config"], settings))


def _one_run(arguments: argparse.Namespace, arm: str, seed: int) -> None:
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.learn.checkpoint import newest
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy.torch_policy import TorchPolicy

    begun = time.monotonic()
    config = _config(arguments, arm, seed)
    store = Store(f"{arguments.work}/{arm}-{seed}")
    store.append_line(MACHINES, {"machine": describe_machine()})
    with open_gym(config.gym, store.child("judged")) as gym:
        begins = TorchPolicy.load(Store(arguments.work).child("cold_start"), config.policy)
        trainer = Trainer(
            config,
            store,
            begins,
            ForgetfulGym(gym) if ARMS[arm].loses_profiles else gym,
            sampler=Float8Sampler(begins) if ARMS[arm].samples_in_float8 else None,
        )
        while not trainer.done:
            if arguments.stop_after and time.monotonic() - begun > 60 * arguments.stop_after:
                return
            print(trainer.step().model_dump_json(exclude={"verdicts"}), flush=True)
        trained = TorchPolicy.load(store.child(newest(store) or ""), config.policy)
        evaluate(
            held_out_evaluation(config, arguments.problems, 2, seed),
            trained,
            gym,
            None,
            store.child("evaluate"),
        )


def _report(arguments: argparse.Namespace) -> None:
    """A page for each claim with its arms in the request; with --write they are kept, with their plots."""
    config, runs = _config(arguments, "base", 0), Runs(arguments.work, arguments.seeds)
    kind = "measured" if config.gym.device == "cuda" else "predicted"
    asked = set(arguments.arms or ARMS)
    for claim in CLAIMS:
        arms = (claim.with_it, claim.without)
        if not asked.issuperset(arms):
            continue
        chosen = f"--work WORK --seeds {' '.join(map(str, arguments.seeds))} --steps {arguments.steps}"
        chosen += f" --arms {' '.join(arms)}"
        if arguments.settings:
            chosen += f" --set {' '.join(arguments.settings)}"
        name = f"learning_{claim.name}_{kind}"
        page = PAGE.format(
            page=name,
            says=f"{claim.says[0].upper()}{claim.says[1:]}",
            kind=kind,
            before=runs.before(),
            lazy=config.cold_start.lazy_share,
            steps=arguments.steps,
            chosen=chosen,
            side_by_side=arguments.side_by_side,
            machine=runs.machines(arms),
            table=runs.table(claim),
        )
        print(page)
        if arguments.write:
            (RESULTS / f"{name}.md").write_text(page)
            runs.plot(arms, RESULTS / f"{name}.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="runs/claims", help="folder of everything that is made")
    parser.add_argument("--side-by-side", type=int, default=1, help="runs that share the machine")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--problems", type=int, default=42, help="held-out problems, two conversations each")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), help="only these")
    parser.add_argument("--stop-after", type=float, help="minutes after which this call stops")
    parser.add_argument("--report", action="store_true", help="print the table")
    parser.add_argument("--write", action="store_true", help="write the pages and plots to docs/results")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    parser.add_argument("--arm", choices=sorted(ARMS), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
