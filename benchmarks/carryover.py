"""Claim: a pretrained code model that is taught the generators' kernels answers KernelBench problems.

    python benchmarks/carryover.py draw --work W
    python benchmarks/carryover.py teach --work W --conversations-file W/conversations.jsonl.gz --model FOLDER
    python benchmarks/carryover.py ask --work W --limit 100 --samples 4     # KERNELBENCH_ROOT is set
    python benchmarks/carryover.py ask --work W --published --model FOLDER  # the model as it was published
    python benchmarks/carryover.py report --work W

Each command goes on from what a run that was cut has left. `draw` takes problems and
kernels from the generators; `teach` trains all weights and leaves the policy in `W/cold_start`; `ask` leaves
a scorecard.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import time
from pathlib import Path

import pandas as pd
from machine import describe_machine

from kernel_core.config import (
    ColdStartConfig,
    EvaluateConfig,
    GymConfig,
    PolicyConfig,
    ProblemsConfig,
    RolloutConfig,
    SamplingConfig,
)
from kernel_core.corpus.generator_source import _exemplars_of as exemplars_of
from kernel_core.corpus.registry import find_source, read_registry
from kernel_core.evaluation.scorecard import evaluate, headline_rows
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.cold_start.dataset import Conversation, build_conversations
from kernel_core.learn.cold_start.sft import cold_start, starting_policy
from kernel_core.policy import open_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.problems.generate import generate
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.store import Store

MEASURED = Path(__file__).parents[1] / "docs" / "results" / "modules_h100.jsonl"
"""What `modules_full_size.py` measured: it decides which grade of a family is taught."""
NEAR_BEST = 0.85
CONVOLUTIONS = tuple(f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3))
"""A third of level 1 asks for one; a draw of all families has a tenth."""
CHAINS = (
    *("conv_elementwise", "conv_norm", "conv_reduce", "conv_pool"),
    *("linear_elementwise", "linear_reduction", "linear_pool"),
)
"""The forms of level 2."""
SPLIT_SEED = 20261125
"""The fixed half of KernelBench that `--limit 100` asks."""


def main() -> None:
    """One of the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=("draw", "teach", "ask", "report"))
    parser.add_argument("--work", required=True)
    parser.add_argument("--model", default="", help="folder of a Hugging Face model")
    parser.add_argument("--published", action="store_true", help="ask the model without a cold start")
    parser.add_argument("--modules", type=int, default=9000, help="problems of the suite `modules`")
    parser.add_argument("--generated", type=int, default=1500, help="problems of the suite `generated`")
    parser.add_argument("--conversations", type=int, default=24000)
    parser.add_argument("--conversations-file", default="", help="of `draw`, for `teach`")
    parser.add_argument("--minibatch-tokens", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--lr", type=float, default=4e-5)
    parser.add_argument("--suite", default="kernelbench")
    parser.add_argument("--levels", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=1400)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--gpu", default="NVIDIA H100 80GB HBM3", help="as prompts name it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    arguments = parser.parse_args()
    {"draw": _draw, "teach": _teach, "ask": _ask, "report": _report}[arguments.stage](arguments)


def best_grades(path: Path) -> dict[str, tuple[str, ...]]:
    """The grades of a family with a median speed-up on a GPU of at least `NEAR_BEST` of the best grade's."""
    frame = pd.read_json(path, lines=True)
    frame = frame[frame["verdict"] == "correct"].assign(grade=lambda one: one["kernel"].str.split("-").str[1])
    medians = frame.groupby(["family", "grade"])["speedup"].median()
    return {
        str(family): tuple(part[part >= NEAR_BEST * part.max()].index.get_level_values("grade"))
        for family, part in medians.groupby(level="family")
    }


def _policy(arguments: argparse.Namespace) -> PolicyConfig:
    on_gpu = arguments.device == "cuda"
    return PolicyConfig(
        kind="torch",
        model=arguments.model,
        device=arguments.device,
        dtype="bfloat16" if on_gpu else "float32",
        max_context=4608,
        decoding="static" if on_gpu else "growing",
    )


def _rollout(arguments: argparse.Namespace) -> RolloutConfig:
    sampling = SamplingConfig(max_new_tokens=arguments.max_new_tokens, batch_size=arguments.batch)
    return RolloutConfig(
        turns=1, exemplars=0, template="full", gpu=arguments.gpu, prompt_budget=3000, sampling=sampling
    )


def _draw(arguments: argparse.Namespace) -> None:
    """Problems and kernels of both generators as conversations, into `W/conversations.jsonl.gz`."""
    began = time.monotonic()
    source = find_source("generator", read_registry())
    made = [
        *generate_modules("train", arguments.modules, arguments.seed),
        *generate_modules("train", arguments.modules // 4, arguments.seed + 1, CONVOLUTIONS),
        *generate_modules("train", arguments.modules // 5, arguments.seed + 2, CHAINS),
        *generate("train", arguments.generated, arguments.seed),
    ]
    chosen = best_grades(MEASURED)
    exemplars = [
        exemplar.model_copy(update={"grade": "tuned"})  # its speed was measured; all grades are taught alike
        for one in made
        for exemplar in exemplars_of(one, source)
        if exemplar.grade in chosen.get(exemplar.family, ("fused", "tuned"))
    ]
    print(f"{len(made)} problems, {len(exemplars)} kernels, {time.monotonic() - began:.0f} s", flush=True)
    with open_gym(GymConfig(workers=1)) as gym:  # no answer is judged: there are no second turns
        conversations = build_conversations(exemplars, gym, _cold_start(arguments), _rollout(arguments))
    lines = "".join(one.model_dump_json() + "\n" for one in conversations)
    Store(arguments.work).write("conversations.jsonl.gz", gzip.compress(lines.encode(), 6))
    print(f"{len(conversations)} conversations, {time.monotonic() - began:.0f} s", flush=True)


def _cold_start(arguments: argparse.Namespace) -> ColdStartConfig:
    return ColdStartConfig(
        steps=arguments.steps,
        minutes=arguments.minutes,
        conversations=arguments.conversations,
        batch_tokens=arguments.batch_tokens,
        checkpoint_minutes=60.0,
        lr=arguments.lr,
        repair_share=0.0,
        mistake_share=0.0,
        naive_share=0.0,
        lazy_share=0.0,
        seed=arguments.seed,
    )


def _teach(arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    lines = gzip.decompress(Path(arguments.conversations_file).read_bytes()).decode().splitlines()
    conversations = [Conversation.model_validate_json(line) for line in lines]
    print(f"{len(conversations)} conversations, {time.monotonic() - began:.0f} s", flush=True)
    config = _cold_start(arguments)
    policy = starting_policy(_policy(arguments), conversations, config.seed)

    def said(label: str, done: int, total: int) -> None:
        if done % 20 == 0:
            print(f"{label} {done} of {total}, {time.monotonic() - began:.0f} s", flush=True)

    store = Store(arguments.work).child("cold_start")
    report = cold_start(
        policy, conversations, config, store, said, minibatch_tokens=arguments.minibatch_tokens
    )
    print(report.model_dump_json(), flush=True)
    for row in store.lines("metrics.jsonl"):
        print(json.dumps(row), flush=True)


def _ask(arguments: argparse.Namespace) -> None:
    began, work = time.monotonic(), Store(arguments.work)
    config = EvaluateConfig(
        problems=ProblemsConfig(
            suite=arguments.suite,
            split="all",
            levels=tuple(arguments.levels),
            limit=arguments.limit,
            seed=SPLIT_SEED,
        ),
        samples_per_problem=arguments.samples,
        k=(1, arguments.samples),
        policy=_policy(arguments),
        rollout=_rollout(arguments),
        gym=GymConfig(device=arguments.device, workers=1, in_flight=6, warm_runners=3),
        seed=arguments.seed,
    )
    if arguments.published:
        policy = open_policy(config.policy)
    else:
        policy = TorchPolicy.load(work.child("cold_start"), config.policy)
    levels = "".join(map(str, arguments.levels))
    name = (
        f"{'published' if arguments.published else 'taught'}-{arguments.suite}-{levels}-{arguments.samples}"
    )
    with open_gym(config.gym, work.child("judged")) as gym:

        def said(label: str, done: int, total: int) -> None:
            print(f"{label} {done} of {total}, {time.monotonic() - began:.0f} s", flush=True)

        card = evaluate(config, policy, gym, None, work.child(name), said)
    print(describe_machine())
    print(json.dumps(headline_rows(card), default=str), flush=True)
    _print_counts(work.child(name))


def _report(arguments: argparse.Namespace) -> None:
    for folder in sorted(Path(arguments.work).iterdir()):
        if (folder / "evaluations.parquet").exists():
            print(f"\n{folder.name}")
            _print_counts(Store(str(folder)))


def _print_counts(store: Store) -> None:
    """Verdicts by level, the share of correct and of faster answers, and the problems that are solved."""
    frame = pd.read_parquet(io.BytesIO(store.read("evaluations.parquet")))
    frame["group"] = frame["problem_id"].str.split("/").str[1]
    print(frame.groupby("group")["verdict"].value_counts().unstack(fill_value=0).to_string())
    for group, part in frame.groupby("group"):
        by_problem = part.assign(right=part["verdict"] == "correct").groupby("problem_id")["right"].mean()
        fast = (part["speedup"].fillna(0.0) > 1.0).mean()
        print(
            f"{group}: pass@1 {by_problem.mean():.1%}, solved {(by_problem > 0).sum()} of {len(by_problem)} "
            f"problems, fast_1 {fast:.1%}"
        )
        print("  " + ", ".join(f"{name.split('/')[-1]}={share:.2f}" for name, share in by_problem.items()))


if __name__ == "__main__":
    main()
