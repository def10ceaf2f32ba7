"""The seeds' claims in miniature: arms that differ in one setting, under equal budget, over several seeds.

    python benchmarks/claims.py --work /tmp/claims --stop-after 60      # again until it says "done"
    python benchmarks/claims.py --work /tmp/claims --report [--write]

Every arm begins with the same cold start, the shipped policy that was taught lazy kernels too, and gets the
same number of steps on the same problems; what differs is one line of `ARMS`. Speed-ups and own-kernel shares
are predicted for an H200, so a run needs no GPU: `--side-by-side` of them share the machine (where there is
one, `--set policy.device=cuda` puts the policies on it). A run that was stopped goes on from its last
checkpoint.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from held_out import held_out_evaluation
from machine import describe_machine

from flows.presets import preset
from kernel_core.config import IngestConfig, TrainConfig
from kernel_core.configure import build, override
from kernel_core.scorecard import evaluate, load_scorecard
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PRESET = "learn"
BASE = (
    "rollout.exemplars=0",
    "sampler.kind=copy",
    "sampler.max_gap=0.3",
    "policy.dtype=bfloat16",
    "curriculum.rewards=dr_kernel",
    "credit=absolute",
    "gamma=1.0",
    "estimator=trloo",
    "profile_rejection=corrected",
    "mismatch.band=0.01",
    "mismatch.veto=0.0001",
)
"""Dr. Kernel's rule whole: TRLOO, the profile in the reward and in rejection, mismatch rejection; the sampler
has the weights in bfloat16 and the trainer in float32, so that there is a mismatch to reject."""
COLD_START = (
    "cold_start.steps=300",
    "cold_start.conversations=6000",
    "cold_start.lr=0.0005",
    "cold_start.mistake_share=0.4",
    "cold_start.naive_share=0.15",
    "cold_start.lazy_share=0.3",
)
"""On top of the shipped policy, which knows no lazy kernels."""
_NO_PROFILE = (
    "curriculum.stages=[{name: speed, promote_metric: fast_1, promote_at: 1.0, "
    "weights: {correct: 1.0, speed: 1.0, speed_form: clipped}}]"
)
ARMS: dict[str, tuple[str, ...]] = {
    "base": (),
    "grpo": ("estimator=grpo",),
    "no-profile": (_NO_PROFILE, "profile_rejection=none"),
    "no-mismatch-rejection": ("mismatch.band=null", "mismatch.veto=null"),
    "regressions-masked": ("mask_regressions=true",),
    "published-rejection": ("profile_rejection=published",),
}
CLAIMS = {
    "grpo": "TRLOO against GRPO",
    "no-profile": "profile in reward and rejection (PR + PRS) against neither",
    "no-mismatch-rejection": "mismatch rejection against none",
    "regressions-masked": "regressions in the loss against the published mask",
    "published-rejection": "corrected profile rejection against the published one",
}
_REJECTED = ("update/num_rejected_rows", "update/num_mismatched_rows")
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365}
"""Student's t for a 95 % interval of a mean of n values."""
PAGE = """# The published claims, in miniature

{num_seeds} seeds an arm, {steps} steps each, from one cold start (the shipped policy, taught with {lazy:.0%}
lazy kernels among first answers: right, but PyTorch does all but the last operation). Speed-ups and shares of
own kernels are predicted for an H200. Differences are base − arm, paired by seed, with 95 % intervals of
Student's t. Small runs of a small policy: they say whether an effect is large here, not that it is absent
elsewhere. Before RL: {before}.

    python benchmarks/claims.py {chosen} --side-by-side {side_by_side}
    python benchmarks/claims.py {chosen} --report --write

Machine: {machine}.

{table}

![Curves of every arm](learning.png)
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
    waiting = [(arm, seed) for seed in arguments.seeds for arm in ARMS if not _finished(arguments, arm, seed)]
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
                    running[place] = _start(arguments, arm, seed, time.monotonic() - begun)
        time.sleep(0.5)
    done = all(_finished(arguments, arm, seed) for arm in ARMS for seed in arguments.seeds)
    print("done" if done else "stopped in time; run the same command again", flush=True)
    if failed:
        sys.exit(f"{failed} runs ended with an error; see the logs under {arguments.work}")


def _cold_start(arguments: argparse.Namespace) -> None:
    """What all arms begin with, once."""
    from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
    from kernel_core.gym import open_gym
    from kernel_core.learn.cold_start import build_conversations, cold_start, starting_policy
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
            report = cold_start(policy, conversations, config.cold_start, work.child("cold_start"))
            print(report.model_dump_json(), flush=True)
        begins = TorchPolicy.load(work.child("cold_start"), config.policy)
        evaluate(
            held_out_evaluation(config, arguments.problems, 2), begins, gym, None, work.child("evaluate")
        )


def _start(arguments: argparse.Namespace, arm: str, seed: int, spent_s: float) -> subprocess.Popen[bytes]:
    folder = Path(arguments.work) / f"{arm}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    threads = max(1, len(os.sched_getaffinity(0)) // arguments.side_by_side)
    left = [] if not arguments.stop_after else ["--stop-after", str(arguments.stop_after - spent_s / 60)]
    command = [sys.executable, __file__, "--work", arguments.work, "--seeds", str(seed), "--arm", arm, *left]
    command += ["--steps", str(arguments.steps), "--problems", str(arguments.problems)]
    command += ["--set", f"gym.workers={threads}", *arguments.settings]
    with (folder / "log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _config(arguments: argparse.Namespace, arm: str, seed: int) -> TrainConfig:
    settings = [
        *BASE,
        *COLD_START,
        *ARMS[arm],
        f"seed={seed}",
        *arguments.settings,
        f"steps={arguments.steps}",
    ]
    return build(TrainConfig, override(preset("train", PRESET)["config"], settings))


def _one_run(arguments: argparse.Namespace, arm: str, seed: int) -> None:
    from kernel_core.gym import open_gym
    from kernel_core.learn.checkpoint import newest
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy.torch_policy import TorchPolicy

    begun = time.monotonic()
    config = _config(arguments, arm, seed)
    store = Store(f"{arguments.work}/{arm}-{seed}")
    with open_gym(config.gym, store.child("judged")) as gym:
        begins = TorchPolicy.load(Store(arguments.work).child("cold_start"), config.policy)
        trainer = Trainer(config, store, begins, gym)
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


def _finished(arguments: argparse.Namespace, arm: str, seed: int) -> bool:
    return Store(f"{arguments.work}/{arm}-{seed}/evaluate").sealed()


def _held_out(store: Store) -> dict[str, float]:
    """Figures on held-out problems."""
    card, found = load_scorecard(store.child("evaluate")), {}
    for turn, score in (("first turn", card.by_turn[0]), ("last turn", card.last)):
        fast = {point.threshold: point.share.value for point in score.headline.fast_p}
        found[f"correct, {turn}"] = score.correct_rate.value
        found[f"fast_1.2, {turn}"] = fast[1.2]
    return found


def _figures(arguments: argparse.Namespace, arm: str, seed: int) -> dict[str, float]:
    """Of one finished run: held-out figures, and how steady training was."""
    store = Store(f"{arguments.work}/{arm}-{seed}")
    rows = [row for row in store.lines("metrics.jsonl") if row["step"] > 0]
    shares = [row["kernel/own_share_mean"] for row in rows if "kernel/own_share_mean" in row]
    return {
        **_held_out(store),
        "own-kernel share in training": float(np.mean(shares)) if shares else float("nan"),
        "rows rejected": sum(row[key] for row in rows for key in _REJECTED if key in row),
        "largest gradient norm": max(row["update/grad_norm"] for row in rows),
        "alarms": float(sum("alarm" in row for row in rows)),
    }


def _report(arguments: argparse.Namespace) -> None:
    """Each claim as a table of paired differences; with --write also the page and its plot."""
    seeds = [seed for seed in arguments.seeds if all(_finished(arguments, arm, seed) for arm in ARMS)]
    if not seeds:
        sys.exit("no seed has finished every arm yet")
    figures = {arm: [_figures(arguments, arm, seed) for seed in seeds] for arm in ARMS}
    lines = ["| claim | figure | base | arm | base − arm | 95 % interval |", "|---|---|---|---|---|---|"]
    for arm, claim in CLAIMS.items():
        for name in figures[arm][0]:
            base, other = (np.array([one[name] for one in figures[key]]) for key in ("base", arm))
            low, high = _interval(base - other)
            lines.append(
                f"| {claim} | {name} | {base.mean():.3f} | {other.mean():.3f} | "
                f"{(base - other).mean():+.3f} | {low:+.3f} … {high:+.3f} |"
            )
    chosen = f"--work WORK --seeds {' '.join(map(str, seeds))} --steps {arguments.steps}"
    page = PAGE.format(
        num_seeds=len(seeds),
        before=", ".join(f"{name} {value:.3f}" for name, value in _held_out(Store(arguments.work)).items()),
        lazy=_config(arguments, "base", 0).cold_start.lazy_share,
        steps=arguments.steps,
        chosen=chosen,
        side_by_side=arguments.side_by_side,
        machine=describe_machine(),
        table="\n".join(lines),
    )
    print(page)
    if arguments.write:
        (RESULTS / "learning.md").write_text(page)
        _plot(arguments, seeds, RESULTS / "learning.png")


def _interval(differences: np.ndarray) -> tuple[float, float]:
    count = len(differences)
    if count < 2:
        return float("nan"), float("nan")
    t = T_95.get(count, 1.96)
    half = t * float(differences.std(ddof=1)) / count**0.5
    return float(differences.mean()) - half, float(differences.mean()) + half


def _plot(arguments: argparse.Namespace, seeds: Sequence[int], path: Path) -> None:
    """Each arm's curves, mean over seeds with the range of them as a band."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    curves = {
        "correct": "kernel/correct_rate",
        "speed-up of correct kernels": "kernel/speedup_geometric_mean",
        "own-kernel share": "kernel/own_share_mean",
        "entropy": "update/entropy",
    }
    figure, axes = plt.subplots(1, len(curves), figsize=(16, 3.8))
    for axis, (title, key) in zip(axes, curves.items(), strict=True):
        for arm in ARMS:
            values = _curve(arguments, arm, seeds, key)
            steps = np.arange(1, values.shape[1] + 1)
            (line,) = axis.plot(steps, np.nanmean(values, axis=0), label=arm)
            low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
            axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.1, linewidth=0)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _curve(arguments: argparse.Namespace, arm: str, seeds: Sequence[int], key: str) -> Any:
    rows = [
        {row["step"]: row.get(key) for row in Store(f"{arguments.work}/{arm}-{seed}").lines("metrics.jsonl")}
        for seed in seeds
    ]
    steps = range(1, max(max(one) for one in rows) + 1)
    return np.array(
        [[np.nan if one.get(step) is None else one[step] for step in steps] for one in rows], float
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="runs/claims", help="folder of everything that is made")
    parser.add_argument("--side-by-side", type=int, default=1, help="runs that share the machine")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--problems", type=int, default=42, help="held-out problems, two conversations each")
    parser.add_argument("--stop-after", type=float, help="minutes after which this call stops")
    parser.add_argument("--report", action="store_true", help="print the table")
    parser.add_argument("--write", action="store_true", help="write docs/results/learning.md and its plot")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    parser.add_argument("--arm", choices=sorted(ARMS), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
