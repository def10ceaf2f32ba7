"""Claim: answers that keep a module and make kernels of some layers teach a model problems by others.

    python benchmarks/swapped_layers.py OUT FOLDER …      # problems, such as `dojo harvest` leaves

Works without a GPU. `OUT/exemplars.jsonl` gets each answer that the judge finds correct, `OUT/outcomes.jsonl`
a line an answer; the same command goes on where it stopped. Problems that give KernelBench away are left out
(KERNELBENCH_ROOT: by all rules, else by sizes). `carryover.py draw --exemplars OUT/exemplars.jsonl` teaches
them. A table of verdicts by part comes last.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from machine import describe_machine

from kernel_core.config import GymConfig
from kernel_core.corpus.kernelbench_leaks import leak_rule
from kernel_core.corpus.normalise import kernel_hash, reference_hash
from kernel_core.errors import DojoError
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.layer_swap.swap import swapped
from kernel_core.problems.load import load_folder
from kernel_core.records import Candidate, Evaluation, Exemplar, Problem
from kernel_core.store import Store

AT_ONCE = 16
"""Answers in a request."""
DEADLINE_S = 8.0
"""The interpreter needs longer for a module of many layers, and others are there to teach."""


def main() -> None:
    """Answers for a folder of problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--judges", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    store = Store(str(arguments.out))
    known = {(row["problem"], row["parts"]) for row in store.lines("outcomes.jsonl")}
    leak = leak_rule()
    problems = [one for folder in arguments.folders for one in load_folder(folder)]
    problems = [one for one in problems if leak(one) is None]
    random.Random(arguments.seed).shuffle(problems)
    answers = [
        (problem, kernel)
        for problem in problems
        for kernel in swapped(problem, random.Random(f"{arguments.seed} {problem.id}"))
        if (problem.id, kernel.thinking) not in known
    ]
    print(f"{len(problems)} problems, {len(answers)} answers", flush=True)
    with (
        open_gym(GymConfig(device="cpu", workers=arguments.judges, deadline_s=DEADLINE_S)) as gym,
        (arguments.out / "outcomes.jsonl").open("a") as said,
        (arguments.out / "exemplars.jsonl").open("a") as kept,
    ):
        ends = time.monotonic() + 60.0 * arguments.minutes
        for problem, kernel, outcome in _judged(answers, gym, ends):
            is_judged = isinstance(outcome, Evaluation)
            verdict, feedback = (
                (outcome.verdict, outcome.feedback) if is_judged else ("no problem", str(outcome))
            )
            row = {"problem": problem.id, "parts": kernel.thinking, "verdict": verdict, "feedback": feedback}
            said.write(json.dumps(row) + "\n")
            said.flush()
            if is_judged and outcome.correct:
                kept.write(_exemplar(problem, kernel, outcome).model_dump_json() + "\n")
                kept.flush()
    print(describe_machine())
    frame = pd.DataFrame(store.lines("outcomes.jsonl"))
    parts = frame["parts"].str.findall(r"(?<=\. )[A-Z][\w ]+(?=: )").str.join(", ")
    print(pd.crosstab(parts, frame["verdict"], margins=True).to_string())
    right = frame[frame["verdict"] == "correct"]["problem"].nunique()
    print(f"{right} of {frame['problem'].nunique()} problems have a right answer")


def _judged(
    answers: Sequence[tuple[Problem, GradedKernel]], gym: PooledGym, ends: float
) -> Iterator[tuple[Problem, GradedKernel, Evaluation | DojoError]]:
    for start in range(0, len(answers), AT_ONCE):
        if time.monotonic() > ends:
            return
        part = answers[start : start + AT_ONCE]
        requests = [
            JudgeRequest(
                problem=problem,
                candidate=Candidate.from_source(kernel.source),
                seed=1,
                timing=False,
                fast=True,
            )
            for problem, kernel in part
        ]
        outcomes = gym.judge_each(requests)
        yield from ((*one, outcome) for one, outcome in zip(part, outcomes, strict=True))
        print(f"{start + len(part)} of {len(answers)}", flush=True)


def _exemplar(problem: Problem, kernel: GradedKernel, evaluation: Evaluation) -> Exemplar:
    row_key = f"{problem.name}/{kernel_hash(kernel.source, 'triton')[:12]}"
    return Exemplar(
        id=f"layer_swap/{row_key}",
        source="layer_swap",
        source_revision=problem.sha256,
        row_key=row_key,
        licence="Apache-2.0",
        attribution="torch's layers as kernels; the module by its own authors",
        language="triton",
        family=problem.family,
        grade="tuned",
        cpu_sizes=", ".join(f"{name}={value!r}" for name, value in problem.cpu_constants.items()),
        reference_code=problem.source,
        kernel_code=kernel.source,
        thinking=kernel.thinking,
        claimed_correct=True,
        reference_hash=reference_hash(problem.source),
        kernel_hash=kernel_hash(kernel.source, "triton"),
        verified=evaluation.verdict,
        verified_by=f"{evaluation.gym_version} {evaluation.device}",
    )


if __name__ == "__main__":
    main()
