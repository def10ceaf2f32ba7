"""Makes the tiny policy that is shipped under data/policy, from nothing, by the preset `cold-start shipped`.

    python benchmarks/make_policy.py --work runs/shipped [--device cuda] [--judges 16] [--keep data/policy]

The same work as `dojo cold-start teach-shipped` without the orchestration, so that it also runs on a GPU host
where only the core's dependencies are installed. Every step is resumable: run the same command again.
Prints how the policy answers problems that it has not seen (one answer a problem at temperature 1).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from pathlib import Path

import torch

from flows.presets import preset
from kernel_core.config import IndexConfig, IngestConfig, ProblemsConfig, TrainConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.dialogue.rollout import roll_out
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.learn.cold_start.sft import build_conversations, cold_start, starting_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.problems.load import load_problems
from kernel_core.retrieval.index import build_index
from kernel_core.retrieval.protocol import Retriever
from kernel_core.retrieval.search import open_retriever
from kernel_core.runs.configure import build, override
from kernel_core.store import Store


def main() -> None:
    """Snapshot, index, conversations, cold start, and a look at what came out."""
    arguments = _arguments()
    parameters = preset("cold-start", "teach-shipped")
    settings = [f"policy.device={arguments.device}", f"gym.workers={arguments.judges}", *arguments.settings]
    of_ingest = [text.removeprefix("ingest.") for text in settings if text.startswith("ingest.")]
    of_training = [text for text in settings if not text.startswith("ingest.")]
    config = build(TrainConfig, override(parameters["config"], of_training))
    work, begun = Store(arguments.work), time.monotonic()

    build_snapshot(build(IngestConfig, override(parameters["ingest"], of_ingest)), work.child("snapshot"))
    build_index(IndexConfig(), work.child("snapshot"), work.child("index"))
    retriever = open_retriever(work.child("index"))
    _say("snapshot and index", begun)
    if arguments.until == "index":
        return
    with open_gym(config.gym, work.child("judged")) as gym:
        begun = time.monotonic()
        conversations = _conversations(work, config, gym, retriever)
        _say(f"{len(conversations)} conversations", begun)
        if arguments.until == "conversations":
            return
        begun = time.monotonic()
        policy = starting_policy(config.policy, conversations, config.cold_start.seed)
        size = sum(parameter.numel() for parameter in policy.model.parameters())
        report = cold_start(
            policy,
            conversations,
            config.cold_start,
            work.child(arguments.name),
            minibatch_tokens=config.minibatch_tokens,
        )
        _say(f"cold start of {size / 1e6:.2f} M parameters: {report.model_dump_json()}", begun)
        if arguments.keep:
            policy.save(Store(arguments.keep), dtype=torch.float16)
            print({path.name: path.stat().st_size for path in sorted(Path(arguments.keep).iterdir())})
        begun = time.monotonic()
        print(json.dumps(_look(policy, gym, retriever, config), indent=1), flush=True)
        _say("look", begun)


def _conversations(work: Store, config: TrainConfig, gym: Gym, retriever: Retriever) -> list[Conversation]:
    """Built once and kept: judging their first turns is most of the time."""
    name = "conversations.jsonl"
    if not work.exists(name):
        exemplars = load_snapshot(work.child("snapshot"))
        made = build_conversations(exemplars, gym, config.cold_start, config.rollout, retriever)
        work.write(name, "\n".join(conversation.model_dump_json() for conversation in made).encode())
    return [Conversation.model_validate_json(line) for line in work.read(name).splitlines()]


def _look(policy: TorchPolicy, gym: Gym, retriever: Retriever, config: TrainConfig) -> dict[str, object]:
    """Verdicts on unseen problems of trained families, and of families never trained on."""
    shown: dict[str, object] = {}
    for split in ("validation", "held_out"):
        problems = load_problems(ProblemsConfig(split=split, limit=150, seed=77))  # type: ignore[arg-type]
        begun = time.monotonic()
        rollouts = roll_out(policy, gym, problems, retriever, config.rollout, group_size=1, seed=7)
        turns = [
            [turn.evaluation for t in group.trajectories for turn in t.turns] for group in rollouts.groups
        ]
        families: dict[str, list[bool]] = defaultdict(list)
        for problem, evaluations in zip(problems, turns, strict=True):
            families[problem.family] += [evaluation.correct for evaluation in evaluations]
        count = len(turns)
        shown[split] = {
            "seconds": round(time.monotonic() - begun, 1),
            "verdicts by turn": [
                {v: round(n / count, 3) for v, n in sorted(Counter(str(e[i].verdict) for e in turns).items())}
                for i in range(config.rollout.turns)
            ],
            "predicted speed-up above": {
                str(p): round(sum((e[0].predicted_speedup or 0) > p for e in turns) / count, 3)
                for p in (1.0, 1.5, 2.0)
            },
            "tokens an answer": round(
                sum(len(s.token_ids) for s in rollouts.samples.values() if s.token_ids is not None)
                / len(rollouts.samples)
            ),
            "correct by family": {f: f"{sum(c)}/{len(c)}" for f, c in sorted(families.items())},
        }
    return shown


def _say(what: str, begun: float) -> None:
    print(f"[{time.monotonic() - begun:7.1f} s] {what}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="runs/shipped", help="folder of the intermediate files")
    parser.add_argument("--name", default="cold_start", help="folder of the trained policy under it")
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where the policy is trained"
    )
    parser.add_argument("--judges", type=int, default=2, help="judge processes")
    parser.add_argument("--until", default="end", choices=("index", "conversations", "end"))
    parser.add_argument("--keep", help="folder to leave the policy in, weights as float16")
    parser.add_argument(
        "settings", nargs="*", help="key.sub=value over the preset; ingest.key=value for its corpus"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
