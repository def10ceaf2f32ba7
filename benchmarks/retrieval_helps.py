"""Claim: exemplars found by retrieval make a policy's answers better, and random ones do not.

The policy answers the same held-out problems once with no exemplar, with 1 and with 3 that retrieval found,
and with as many drawn at random. The interval of each change is over problems, paired with no exemplar.

    python benchmarks/retrieval_helps.py --write
    python benchmarks/retrieval_helps.py --policy Qwen/Qwen2.5-Coder-7B-Instruct --device cuda \\
        --template full --prompt-budget 8192 --new-tokens 4096 --write
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from report import Report

from kernel_core.config import (
    EvaluateConfig,
    IndexConfig,
    IngestConfig,
    ProblemsConfig,
    RetrievalConfig,
    RolloutConfig,
    SamplingConfig,
)
from kernel_core.corpus.snapshot import build_snapshot
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.scorecard import evaluate
from kernel_core.evaluation.statistics import Estimate
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.policy import open_policy
from kernel_core.policy.protocol import Policy
from kernel_core.problems.load import load_problems
from kernel_core.retrieval.index import build_index
from kernel_core.retrieval.search import open_retriever
from kernel_core.runs.configure import build
from kernel_core.store import Store

_WAYS = (
    ("none", 0, "dense"),
    ("nearest", 1, "dense"),
    ("nearest", 3, "dense"),
    ("random", 1, "random"),
    ("random", 3, "random"),
)
_COLUMNS = (
    "exemplars",
    "k",
    "shown",
    "correct",
    "95 % interval",
    "change",
    "95 % interval of it",
    "fast_1",
    "change",
    "95 % interval of it",
)


def main() -> int:
    """Evaluate the policy in every way, compare each with none, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", default="shipped", help="`shipped`, or a Hugging Face name or path")
    parser.add_argument("--problems", type=int, default=84)
    parser.add_argument("--samples", type=int, default=3, help="conversations a problem, of one turn each")
    parser.add_argument("--rows", type=int, default=2000, help="problems in the corpus")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--template", choices=("compact", "full"), default="compact")
    parser.add_argument("--prompt-budget", type=int, default=1500)
    parser.add_argument("--new-tokens", type=int, default=None)
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    chosen = " ".join(
        f"--{name} {getattr(arguments, name)}" for name in ("policy", "problems", "samples", "rows", "device")
    )
    report = Report("retrieval_helps", chosen, __doc__)
    with tempfile.TemporaryDirectory() as scratch:
        work = Store(Path(scratch) / "run")
        snapshot, index = work.child("snapshot"), work.child("index")
        build_snapshot(IngestConfig(generator_rows=arguments.rows), snapshot)
        build_index(IndexConfig(), snapshot, index)
        first = _config(arguments, 0, "dense")
        with (
            contextlib.closing(open_policy(first.policy, None)) as policy,
            open_gym(first.gym, work.child("judged")) as gym,
        ):
            held = {
                (name, k): _evaluated(_config(arguments, k, mode), policy, gym, work, f"{name}-{k}")
                for name, k, mode in _WAYS
            }
    baseline = held["none", 0][0]
    rows = [[name, str(k), *_figures(baseline, card, shown)] for (name, k), (card, shown) in held.items()]
    report.table(
        f"{baseline.conditions.policy_version}, {arguments.problems} held-out problems", _COLUMNS, rows
    )
    report.note(
        f"`shown` is the mean number of exemplars that fitted a prompt of {arguments.prompt_budget} tokens. "
        f"fast_1 is {baseline.headline}. Template `{arguments.template}`."
    )
    report.finish(arguments.write)
    return 0


def _config(arguments: argparse.Namespace, k: int, mode: str) -> EvaluateConfig:
    sampling = {} if arguments.new_tokens is None else {"max_new_tokens": arguments.new_tokens}
    return EvaluateConfig(
        problems=ProblemsConfig(split="held_out", limit=arguments.problems, seed=1000),
        samples_per_problem=arguments.samples,
        k=(1,),
        policy=build(type(EvaluateConfig().policy), {"model": arguments.policy, "device": arguments.device}),
        rollout=RolloutConfig(
            turns=1,
            exemplars=k,
            template=arguments.template,
            prompt_budget=arguments.prompt_budget,
            retrieval=build(RetrievalConfig, {"mode": mode}),
            sampling=build(SamplingConfig, sampling),
        ),
        gym=build(type(EvaluateConfig().gym), {"device": arguments.device}),
        seed=1000,
    )


def _evaluated(
    config: EvaluateConfig, policy: Policy, gym: Gym, work: Store, name: str
) -> tuple[Scorecard, float]:
    """The scorecard, and how many exemplars a prompt showed on average."""
    retriever = open_retriever(work.child("index"), config=config.rollout.retrieval)
    card = evaluate(config, policy, gym, retriever, work.child(name))
    shown: Sequence[int] = [0]
    if config.rollout.exemplars:
        problems = load_problems(config.problems)
        found = retriever.search_many(problems, config.rollout.exemplars)
        shown = [
            sum(one.exemplar.kernel_code.strip() in prompt for one in near)
            for problem, near in zip(problems, found, strict=True)
            for prompt in [
                build_prompt(
                    problem, [one.exemplar for one in near], (), config.rollout, policy.count_tokens
                )[-1]["content"]
            ]
        ]
    print(name, card.last.correct_rate, flush=True)
    return card, float(np.mean(shown))


def _figures(baseline: Scorecard, card: Scorecard, shown: float) -> list[str]:
    changes = {one.metric: one for one in compare(baseline, card).changes if one.view == "last"}
    correct, fast = changes["correct_rate"], changes[f"fast_1 ({card.headline})"]
    return [
        f"{shown:.2f}",
        f"{correct.after:.3f}",
        _interval(card.last.correct_rate),
        *_change(correct.change),
        f"{fast.after:.3f}",
        *_change(fast.change),
    ]


def _change(estimate: Estimate | None) -> list[str]:
    return ["", ""] if estimate is None else [f"{estimate.value:+.3f}", _interval(estimate)]


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{estimate.low:+.3f} to {estimate.high:+.3f}"


if __name__ == "__main__":
    sys.exit(main())
