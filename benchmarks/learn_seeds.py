"""Does RL learn? The preset `train learn` over several seeds, measured before and after on held-out problems.

    python benchmarks/learn_seeds.py --work runs/learn-seeds --seeds 0 1 2 [--cores 2] [--stop-after MINUTES]
    python benchmarks/learn_seeds.py --work runs/learn-seeds --seeds 0 1 2 --table docs/results/learn.md

Each seed is a process of its own on `--cores` cores of its own, as if it had the machine to itself. Every
step is resumable: a seed that was stopped goes on from its last checkpoint when the command is run again.
The corpus is made once and shared, as is nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flows.presets import preset
from kernel_core.config import EvaluateConfig, IndexConfig, IngestConfig, TrainConfig, build, override

PRESET = "learn"


def main() -> None:
    """Prepare the corpus, run the seeds side by side, print the table of those that are done."""
    arguments = _arguments()
    if arguments.seed is not None:
        _one_seed(arguments, arguments.seed)
        return
    _prepare(arguments)
    started = [_start(arguments, seed, place) for place, seed in enumerate(arguments.seeds)]
    try:
        failed = [seed for seed, process in zip(arguments.seeds, started, strict=True) if process.wait()]
    finally:
        for process in started:
            process.kill()
    _print_table(arguments)
    if failed:
        sys.exit(f"seeds {failed} ended with an error; see seed-*/log under {arguments.work}")


def _prepare(arguments: argparse.Namespace) -> None:
    from kernel_core.corpus.snapshot import build_snapshot
    from kernel_core.retrieval.index import build_index
    from kernel_core.store import Store

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

    from kernel_core.gym import open_gym
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy import open_policy
    from kernel_core.retrieval.search import open_retriever
    from kernel_core.scorecard import evaluate
    from kernel_core.store import Store

    torch.set_num_threads(arguments.cores)
    begun = time.monotonic()
    parameters = preset("train", PRESET)
    settings = [f"seed={seed}", f"gym.workers={arguments.cores}", *arguments.settings]
    config = build(TrainConfig, override(parameters["config"], settings))
    measured = build(
        EvaluateConfig,
        {
            "problems": {"split": "held_out", "limit": arguments.problems, "seed": 1000},
            "samples_per_problem": arguments.samples,
            "rollout": config.rollout.model_dump(),
            "gym": config.gym.model_dump(),
            "seed": 1000 + seed,
        },
    )
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


def _print_table(arguments: argparse.Namespace) -> None:
    """Before and after of every finished seed, as Markdown; kept with --table."""
    from kernel_core.scorecard import compare, load_scorecard
    from kernel_core.store import Store

    lines: list[str] = []
    for seed in arguments.seeds:
        store = Store(f"{arguments.work}/seed-{seed}")
        rows: list[dict[str, Any]] = list(store.lines("metrics.jsonl"))
        minutes = sum(value for row in rows for key, value in row.items() if key.startswith("seconds/")) / 60
        lines.append(
            f"\nSeed {seed}: {rows[-1]['step'] if rows else 0} steps, {minutes:.1f} minutes of training.\n"
        )
        try:
            before = load_scorecard(store.child("evaluate-before"))
            after = load_scorecard(store.child("evaluate-after"))
        except Exception as error:
            lines.append(f"Not finished: {error}")
            continue
        table = compare(before, after).rows()
        header = list(table[0])
        lines += [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        lines += [f"| {' | '.join(_cell(row[key]) for key in header)} |" for row in table]
    text = "\n".join(lines)
    print(text)
    if arguments.table:
        Path(arguments.table).write_text(text + "\n")


def _cell(value: Any) -> str:
    return (
        f"{value:.3f}"
        if isinstance(value, float)
        else json.dumps(value)
        if isinstance(value, list)
        else str(value)
    )


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
    parser.add_argument("--table", help="Markdown file for the table")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
