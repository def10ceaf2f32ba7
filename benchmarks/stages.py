"""Claim: what each stage gets through in a second, on a named machine.

Times ingest (rows), the index (rows embedded), the judge (candidates, none judged before), sampling and
training (tokens; a policy of the default size with random weights, so that every answer runs to its end).

    python benchmarks/stages.py --write
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from machine import describe_machine
from rich.console import Console
from rich.table import Table

from kernel_core.config import GymConfig, IndexConfig, IngestConfig, PolicyConfig, RolloutConfig, TrainConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.dialogue.prompt import build_prompt, format_completion
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.batch import Row
from kernel_core.learn.update import new_optimiser, update
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.problems.generate import generate
from kernel_core.problems.graded import Generated
from kernel_core.records import Candidate, Exemplar
from kernel_core.retrieval.index import build_index
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Figure:
    """How much of something was done in how long."""

    stage: str
    unit: str
    amount: int
    seconds: float
    setting: str

    @property
    def per_second(self) -> float:
        """The stage's throughput."""
        return self.amount / self.seconds


def main() -> int:
    """Time every stage, print the table, and write it with the machine's name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=400, help="problems the generator contributes")
    parser.add_argument("--candidates", type=int, default=64, help="judged")
    parser.add_argument("--conversations", type=int, default=32, help="sampled and trained on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(scratch)
        figures = [*_corpus(store, arguments.rows), _judge(arguments.candidates, arguments.device)]
        exemplars = load_snapshot(store.child("snapshot"))
        figures += _learning(exemplars, arguments.conversations, arguments.device)
    _show(figures)
    if arguments.write:
        _write(figures, arguments)
    return 0


def _timed(work: Callable[[], int], stage: str, unit: str, setting: str) -> Figure:
    started = time.perf_counter()
    amount = work()
    return Figure(stage, unit, amount, time.perf_counter() - started, setting)


def _corpus(store: Store, rows: int) -> list[Figure]:
    snapshot, index = store.child("snapshot"), store.child("index")

    def ingest() -> int:
        build_snapshot(IngestConfig(generator_rows=rows), snapshot)
        return len(load_snapshot(snapshot))

    def embed() -> int:
        return int(build_index(IndexConfig(), snapshot, index).meta["num_references"])

    return [
        _timed(ingest, "ingest", "rows kept", f"generator, {rows} problems"),
        _timed(embed, "index", "rows embedded", "offline embedder"),
    ]


def _judge(count: int, device: str) -> Figure:
    made = generate("train", count // 4 + 1, seed=7)
    requests = _requests(made)[:count]
    config = GymConfig(device=device, workers=2 if device == "cpu" else 1)
    with open_gym(config) as gym:
        gym.judge(_requests(generate("train", 1, seed=8))[:2])  # judges are up before the clock starts

        def judge() -> int:
            return len(gym.judge(requests))

        setting = f"{config.workers} judges, {config.trials} trials, half of them mistakes"
        return _timed(judge, "judge", "candidates", setting)


def _requests(made: list[Generated]) -> list[JudgeRequest]:
    """Two right kernels and two mistakes of each problem."""
    chosen = []
    for one in made:
        right = [kernel for kernel in one.kernels if kernel.grade != "mistake"][:2]
        wrong = [kernel for kernel in one.kernels if kernel.grade == "mistake"][:2]
        chosen += [
            JudgeRequest(problem=one.problem, candidate=Candidate.from_source(kernel.source), seed=1)
            for kernel in right + wrong
        ]
    return chosen


def _learning(exemplars: list[Exemplar], conversations: int, device: str) -> list[Figure]:
    texts = [format_completion(e.thinking, e.kernel_code) for e in exemplars]
    texts += [e.reference_code for e in exemplars]
    policy = new_policy(PolicyConfig(model="new", device=device), texts, seed=0)
    rollout = RolloutConfig(exemplars=0)
    prompts = [
        build_prompt(made.problem, (), (), rollout, policy.count_tokens)
        for made in generate("train", conversations, seed=9)
    ]
    length = rollout.sampling.max_new_tokens
    rows: list[Row] = []

    def sample() -> int:
        drawn = policy.sample(prompts, temperature=1.0, max_new_tokens=length, seed=0)
        for prompt, one in zip(prompts, drawn, strict=True):
            assert one.token_ids is not None, "a torch policy gives token ids"
            rows.append(Row(policy.encode_messages(prompt), one.token_ids, 1.0, one.logprobs))
        return sum(len(row.answer_ids) for row in rows)

    def train() -> int:
        optimiser = new_optimiser(policy.model, lr=1e-4)
        update(policy, optimiser, rows, TrainConfig())
        return sum(map(len, rows))

    size = f"{_millions(policy):.1f} M parameters"
    return [
        _timed(sample, "sample", "tokens written", f"{size}, {conversations} at once, up to {length} each"),
        _timed(train, "train", "tokens of prompt and answer", f"{size}, one RL update"),
    ]


def _millions(policy: TorchPolicy) -> float:
    return float(sum(parameter.numel() for parameter in policy.model.parameters())) / 1e6


_COLUMNS = ("stage", "per second", "of", "amount", "seconds", "setting")


def _cells(figure: Figure) -> list[str]:
    speed = f"{figure.per_second:.1f}" if figure.per_second < 100 else f"{figure.per_second:,.0f}"
    amounts = (f"{figure.amount:,}", f"{figure.seconds:.1f}")
    return [figure.stage, speed, figure.unit, *amounts, figure.setting]


def _show(figures: list[Figure]) -> None:
    table = Table(*_COLUMNS, title="throughput of each stage")
    for figure in figures:
        table.add_row(*_cells(figure))
    Console(width=120).print(table)


def _write(figures: list[Figure], arguments: argparse.Namespace) -> None:
    machine = describe_machine()
    name = f"stages_{arguments.device}"
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": machine,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "figures": [asdict(figure) | {"per_second": figure.per_second} for figure in figures],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    lines = [
        "# Throughput of each stage",
        "",
        f"    python benchmarks/stages.py --rows {arguments.rows} --candidates {arguments.candidates} "
        f"--conversations {arguments.conversations} --device {arguments.device} --write",
        "",
        f"Machine: {machine}. One run.",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "---|" * len(_COLUMNS),
        *("| " + " | ".join(_cells(figure)) + " |" for figure in figures),
    ]
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
