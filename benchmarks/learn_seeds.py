"""Does RL learn? The preset `train learn` over several seeds, measured before and after on held-out problems.

    python benchmarks/learn_seeds.py --seeds 0 1 2 [--stop-after MINUTES] [--write]

Each seed is a process on `--cores` cores of its own, as if it had the machine to itself; as many run side by
side as there are cores for. Every step is resumable: a seed that was stopped goes on from its last
checkpoint when the command is run again. The corpus is made once and shared, as is nothing else.
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

from held_out import held_out_evaluation
from machine import describe_machine

from flows.presets import preset
from kernel_core.config import IndexConfig, IngestConfig, TrainConfig
from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.problems.families import TRAINED
from kernel_core.runs.configure import build, override
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PRESET = "learn"
PAGE = """# Does RL learn?

The preset `train {preset}` over several seeds, from the shipped policy. Before and after it, the policy is
scored on the same {problems} held-out problems, {samples} conversations of two turns each; none of them is
trained on, and the seed also draws these conversations. Speed-ups are predicted for an H200.

    python benchmarks/learn_seeds.py --seeds {seeds} --cores {cores} --write

Machine: {machine}; {cores} cores a seed. Minutes are of training alone, with its measurements on validation
problems.

{table}

The interval is over problems, for a pair of scorecards of the same problems.

![Correct answers by step](learn.png)

## By family

Correct at the last turn, all seeds together.

{families}
"""


def main() -> None:
    """Prepare the corpus, run the seeds side by side, print the table of those that are done."""
    arguments = _arguments()
    if arguments.seed is not None:
        _one_seed(arguments, arguments.seed)
        return
    _prepare(arguments)
    room = max(1, len(os.sched_getaffinity(0)) // arguments.cores)
    failed: list[int] = []
    for first in range(0, len(arguments.seeds), room):
        seeds = arguments.seeds[first : first + room]
        started = [_start(arguments, seed, place) for place, seed in enumerate(seeds)]
        try:
            failed += [seed for seed, process in zip(seeds, started, strict=True) if process.wait()]
        finally:
            for process in started:
                process.kill()
    _report(arguments)
    if failed:
        sys.exit(f"seeds {failed} ended with an error; see seed-*/log under {arguments.work}")


def _prepare(arguments: argparse.Namespace) -> None:
    from kernel_core.corpus.snapshot import build_snapshot
    from kernel_core.retrieval.index import build_index

    work = Store(arguments.work)
    build_snapshot(build(IngestConfig, preset("train", PRESET).get("ingest", {})), work.child("snapshot"))
    build_index(IndexConfig(), work.child("snapshot"), work.child("index"))


def _start(arguments: argparse.Namespace, seed: int, place: int) -> subprocess.Popen[bytes]:
    """A seed's process, bound to its cores."""
    first = place * arguments.cores
    cores = sorted(os.sched_getaffinity(0))[first : first + arguments.cores]
    folder = Path(arguments.work) / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.cores)}
    command = [sys.executable, __file__, *sys.argv[1:], "--seed", str(seed)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if len(cores) == arguments.cores else None,
        )


def _one_seed(arguments: argparse.Namespace, seed: int) -> None:
    """Evaluate the cold start, train, evaluate what came out."""
    import torch

    from kernel_core.evaluation.scorecard import evaluate
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy import open_policy
    from kernel_core.retrieval.search import open_retriever

    torch.set_num_threads(arguments.cores)
    begun = time.monotonic()
    parameters = preset("train", PRESET)
    settings = [f"seed={seed}", f"gym.workers={arguments.cores}", *arguments.settings]
    config = build(TrainConfig, override(parameters["config"], settings))
    measured = held_out_evaluation(config, arguments.problems, arguments.samples, seed)
    work, store = Store(arguments.work), Store(f"{arguments.work}/seed-{seed}")
    retriever = open_retriever(work.child("index"))
    with open_gym(config.gym, work.child("judged")) as gym:
        policy = open_policy(config.policy, arguments.policy)
        before = evaluate(measured, policy, gym, retriever, store.child("evaluate-before"))
        trainer = Trainer(config, store, policy, gym, retriever)  # type: ignore[arg-type]
        while not trainer.done:
            if arguments.stop_after and time.monotonic() - begun > 60 * arguments.stop_after:
                print("stopped in time; run the same command again", flush=True)
                return
            report = trainer.step()
            print(report.model_dump_json(exclude={"update"}), flush=True)
        after = evaluate(measured, policy, gym, retriever, store.child("evaluate-after"))
    print(before.last.model_dump_json(), after.last.model_dump_json(), flush=True)


def _report(arguments: argparse.Namespace) -> None:
    """Before and after of every finished seed as Markdown; with --write also the page and its plot."""
    cards = {seed: _cards(arguments, seed) for seed in arguments.seeds}
    finished = {seed: pair for seed, pair in cards.items() if pair is not None}
    lines = [
        "| seed | steps | minutes | correct, first turn | correct, last turn | change | 95 % interval "
        "| fast_1, predicted | change | geometric-mean speed-up |",
        f"|{'---|' * 10}",
        *(_row(arguments, seed, *pair) for seed, pair in finished.items()),
        *(f"| {seed} | not finished |{' |' * 8}" for seed in cards if seed not in finished),
    ]
    families = _families(list(finished.values()))
    print("\n".join([*lines, "", *families]))
    if arguments.write:
        page = PAGE.format(
            preset=PRESET,
            seeds=" ".join(map(str, arguments.seeds)),
            cores=arguments.cores,
            problems=arguments.problems,
            samples=arguments.samples,
            machine=describe_machine(),
            table="\n".join(lines),
            families="\n".join(families),
        )
        (RESULTS / "learn.md").write_text(page)
        _plot(arguments, RESULTS / "learn.png")


def _cards(arguments: argparse.Namespace, seed: int) -> tuple[Scorecard, Scorecard] | None:
    store = Store(arguments.work).child(f"seed-{seed}")
    folders = [store.child(name) for name in ("evaluate-before", "evaluate-after")]
    if not all(folder.sealed() for folder in folders):
        return None
    before, after = map(load_scorecard, folders)
    return before, after


def _row(arguments: argparse.Namespace, seed: int, before: Scorecard, after: Scorecard) -> str:
    rows = _metrics(arguments, seed)
    minutes = sum(value for row in rows for key, value in row.items() if key.startswith("seconds/")) / 60
    changes = {(one.metric, one.view): one for one in compare(before, after).changes}
    correct, fast = changes["correct_rate", "last"], changes["fast_1 (predicted)", "last"]
    mean = changes["geometric-mean speed-up (predicted)", "last"]
    first = [card.by_turn[0].correct_rate.value for card in (before, after)]
    assert correct.change is not None and fast.change is not None
    cells = [
        str(seed),
        str(rows[-1]["step"]),
        f"{minutes:.1f}",
        f"{first[0]:.3f} → {first[1]:.3f}",
        f"{correct.before:.3f} → {correct.after:.3f}",
        f"**{100 * correct.change.value:+.1f} points**",
        f"{100 * correct.change.low:+.1f} … {100 * correct.change.high:+.1f}",
        f"{fast.before:.3f} → {fast.after:.3f}",
        f"**{100 * fast.change.value:+.1f} points**",
        f"{mean.before:.2f} → {mean.after:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _families(pairs: Sequence[tuple[Scorecard, Scorecard]]) -> list[str]:
    """Last-turn correct rate by family, all seeds together."""
    if not pairs:
        return []
    lines = ["| family | trained on | before | after |", "|---|---|---|---|"]
    for family in sorted(pairs[0][0].by_family):
        rates = [
            sum(pair[i].by_family[family].correct_rate.value for pair in pairs) / len(pairs) for i in (0, 1)
        ]
        lines.append(
            f"| {family} | {'yes' if family in TRAINED else 'never'} | {rates[0]:.2f} | {rates[1]:.2f} |"
        )
    return lines


def _metrics(arguments: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    return list(Store(arguments.work).child(f"seed-{seed}").lines("metrics.jsonl"))


def _plot(arguments: argparse.Namespace, path: Path) -> None:
    """Correct answers by step: of the training problems by turn, and of the validation problems."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    curves = {
        "training problems, first turn": "multiturn/turn_0/correct_rate",
        "training problems, last turn": "multiturn/turn_1/correct_rate",
        "validation problems, one answer": "probe/correct_rate",
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True)
    for axis, (title, key) in zip(axes, curves.items(), strict=True):
        for seed in arguments.seeds:
            rows = [row for row in _metrics(arguments, seed) if key in row]
            axis.plot([row["step"] for row in rows], [row[key] for row in rows], label=f"seed {seed}")
        axis.set(title=title, xlabel="step", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("correct")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="runs/learn-seeds", help="folder of everything that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cores", type=int, default=2, help="cores of each seed")
    parser.add_argument("--stop-after", type=float, help="minutes after which a seed stops, to go on later")
    parser.add_argument(
        "--policy", help="folder of the cold-started policy; by default the one that is shipped"
    )
    parser.add_argument("--problems", type=int, default=84, help="held-out problems")
    parser.add_argument("--samples", type=int, default=3, help="conversations a problem")
    parser.add_argument("--write", action="store_true", help="write docs/results/learn.md and its plot")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
