"""A policy from nothing on one GPU: cold start, RL, and held-out problems before and after.

    python benchmarks/from_nothing.py --work /tmp/from-nothing --stop-after 8.5   # again until it says "done"
    python benchmarks/from_nothing.py --work /tmp/from-nothing --report [--write]

Each call works for at most so many minutes (a step or a part of an evaluation longer) and goes on where the
last one stopped; `--rl-minutes` bounds the whole of RL. What is made is the preset `train from-nothing`;
`--tiny` runs the same path at a scale that a CPU can do, and learns nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from held_out import held_out_evaluation
from machine import describe_machine

from flows.presets import preset
from kernel_core.config import IngestConfig, TrainConfig
from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.metrics import Scorecard, outcomes_in
from kernel_core.evaluation.scorecard import evaluate, load_scorecard
from kernel_core.evaluation.statistics import mean_difference
from kernel_core.runs.configure import build, override
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PRESET = "from-nothing-on-gpu"
THRESHOLD = 1.2
TINY = (
    "steps=2",
    "problems_per_step=2",
    "group_size=2",
    "policy.device=cpu",
    "policy.dtype=float32",
    "policy.hidden_size=64",
    "policy.num_layers=2",
    "policy.num_heads=2",
    "policy.vocab_size=512",
    "cold_start.steps=6",
    "cold_start.conversations=24",
    "cold_start.judged=4",
    "cold_start.batch_tokens=2048",
    "rollout.sampling.max_new_tokens=32",
    "curriculum.probe_problems=2",
    "gym.device=cpu",
)
PAGE = """# A policy from nothing

The preset `train {preset}`, seed {seed}: {parameters:.1f} M weights, cold start and RL on one machine, judged
on it. Before and after RL the policy answers the same {problems} held-out problems, {samples} conversations
each. Speed-ups are {kind}.

    python benchmarks/from_nothing.py --work WORK {options} --stop-after 8.5   # until it says "done"
    python benchmarks/from_nothing.py --work WORK {options} --report --write

Machine: {machine}.

{table}

Intervals are 95 %, over problems, for a pair of scorecards of the same problems.

![Correct and fast answers by step](from_nothing.png)

Every step's metrics: [from_nothing.jsonl](from_nothing.jsonl).

| phase | minutes |
|---|---|
{minutes}
"""


def main() -> None:
    """Work until the time is up, or print what came out."""
    arguments = _arguments()
    if arguments.report:
        _report(arguments)
        return
    out_of_time = _deadline(arguments.stop_after)
    print(
        "done" if _work(arguments, out_of_time) else "stopped in time; run the same command again", flush=True
    )


def _work(arguments: argparse.Namespace, out_of_time: Callable[[], bool]) -> bool:
    """Every phase in order; False when the time was up before the last."""
    from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.learn.checkpoint import newest
    from kernel_core.learn.cold_start.sft import build_conversations, cold_start, starting_policy
    from kernel_core.learn.loop import Trainer
    from kernel_core.policy.torch_policy import TorchPolicy
    from kernel_core.report.run_page import write_report

    config, work = _config(arguments), Store(arguments.work)
    measured = held_out_evaluation(config, arguments.problems, arguments.samples)
    begun = time.monotonic()

    def phase(name: str) -> None:
        nonlocal begun
        now = time.monotonic()
        work.append_line("phases.jsonl", {"phase": name, "seconds": round(now - begun, 1)})
        print(f"{name}: {now - begun:.0f} s", flush=True)
        begun = now

    ingest = preset("train", PRESET).get("ingest", {}) | ({"generator_rows": 40} if arguments.tiny else {})
    build_snapshot(build(IngestConfig, ingest), work.child("snapshot"))
    phase("snapshot")
    with open_gym(config.gym, work.child("judged")) as gym:
        folder = work.child("cold_start")
        if not folder.sealed():
            exemplars = load_snapshot(work.child("snapshot"))
            conversations = build_conversations(exemplars, gym, config.cold_start, config.rollout)
            phase("conversations")
            new = starting_policy(config.policy, conversations, config.cold_start.seed)
            report = cold_start(
                new, conversations, config.cold_start, folder, minibatch_tokens=config.minibatch_tokens
            )
            print(report.model_dump_json(), flush=True)
            del new
            phase("cold start")
        policy = TorchPolicy.load(folder, config.policy)
        work.write_json("parameters.json", policy.num_parameters)
        if out_of_time():
            return False
        evaluate(measured, policy, gym, None, work.child("evaluate-before"))
        phase("evaluation before")
        trainer = Trainer(config, work.child("rl"), TorchPolicy.load(folder, config.policy), gym)
        while not trainer.done:
            if out_of_time():
                return False
            report = trainer.step()
            print(report.model_dump_json(exclude={"verdicts"}), flush=True)
            phase("RL")
        write_report(work.child("rl"))
        if out_of_time():
            return False
        trained = TorchPolicy.load(work.child("rl").child(newest(work.child("rl")) or ""), config.policy)
        evaluate(measured, trained, gym, None, work.child("evaluate-after"))
        phase("evaluation after")
    return True


def _config(arguments: argparse.Namespace) -> TrainConfig:
    settings = [f"seed={arguments.seed}", f"minutes={arguments.rl_minutes}"]
    settings += [*(TINY if arguments.tiny else ()), *arguments.settings]
    return build(TrainConfig, override(preset("train", PRESET)["config"], settings))


def _deadline(minutes: float | None) -> Callable[[], bool]:
    begun = time.monotonic()
    return lambda: minutes is not None and time.monotonic() - begun > 60 * minutes


def _report(arguments: argparse.Namespace) -> None:
    """Before and after as Markdown; with --write also the page."""
    work = Store(arguments.work)
    before, after = (load_scorecard(work.child(f"evaluate-{when}")) for when in ("before", "after"))
    lines = ["| metric | turn | before | after | change | 95 % interval |", "|---|---|---|---|---|---|"]
    pairs = [_shares_above(card, THRESHOLD) for card in (before, after)]
    fast, means = mean_difference(*pairs), [sum(one) / len(one) for one in pairs]
    lines.append(
        f"| fast_{THRESHOLD} ({before.headline}) | last | {means[0]:.3f} | {means[1]:.3f} | "
        f"{fast.value:+.3f} | {_shown(fast.low)} … {_shown(fast.high)} |"
    )
    for one in compare(before, after).changes:
        change, interval = one.in_words(digits=3)
        lines.append(
            f"| {one.metric} | {one.view} | {_shown(one.before)} | {_shown(one.after)} "
            f"| {change} | {interval} |"
        )
    seconds: dict[str, float] = {}
    for row in work.lines("phases.jsonl"):
        seconds[row["phase"]] = seconds.get(row["phase"], 0.0) + row["seconds"]
    page = PAGE.format(
        preset=PRESET,
        seed=arguments.seed,
        options=" ".join(
            f"--{name.replace('_', '-')} {getattr(arguments, name):g}"
            for name in ("seed", "rl_minutes", "problems")
        ),
        parameters=json.loads(work.read("parameters.json")) / 1e6,
        problems=before.last.num_problems,
        samples=arguments.samples,
        kind=before.headline,
        machine=describe_machine(),
        table="\n".join(lines),
        minutes="\n".join(f"| {name} | {value / 60:.1f} |" for name, value in seconds.items()),
    )
    print(page)
    if arguments.write:
        (RESULTS / "from_nothing.md").write_text(page)
        metrics = work.child("rl").read("metrics.jsonl")
        (RESULTS / "from_nothing.jsonl").write_bytes(metrics)
        _plot(work.child("rl").lines("metrics.jsonl"), RESULTS / "from_nothing.png")


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Correct and fast answers by step: of the training problems, and of the validation problems."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    curves = {
        "training problems, first turn": ("multiturn/turn_0/correct_rate", "multiturn/turn_0/fast_1_rate"),
        "training problems, last turn": ("multiturn/turn_1/correct_rate", "multiturn/turn_1/fast_1_rate"),
        "validation problems, one answer": ("probe/correct_rate", "probe/fast_1"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True)
    for axis, (title, keys) in zip(axes, curves.items(), strict=True):
        for label, key in zip(("correct", "fast_1"), keys, strict=True):
            shown = [row for row in rows if key in row]
            axis.plot([row["step"] for row in shown], [row[key] for row in shown], label=label)
        axis.set(title=title, xlabel="step", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _shares_above(card: Scorecard, threshold: float) -> list[float]:
    """Share of each problem's last turns that are correct and faster than the threshold."""
    problems = [outcomes_in(problem, "last", card.headline) for problem in card.problems]
    return [sum(o.faster_than(threshold, card.headline) for o in one) / len(one) for one in problems]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="runs/from-nothing", help="folder of everything that is made")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-after", type=float, help="minutes after which this call stops")
    parser.add_argument("--rl-minutes", type=float, default=12.0, help="minutes of RL in all")
    parser.add_argument("--problems", type=int, default=84, help="held-out problems")
    parser.add_argument("--samples", type=int, default=2, help="conversations a problem")
    parser.add_argument("--tiny", action="store_true", help="the same path at a scale for a CPU")
    parser.add_argument("--report", action="store_true", help="print before and after")
    parser.add_argument("--write", action="store_true", help="write docs/results/from_nothing.md")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="key.sub=value over the preset")
    return parser.parse_args()


if __name__ == "__main__":
    main()
