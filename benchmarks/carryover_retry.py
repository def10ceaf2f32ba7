"""Claim: a second turn with the judge's feedback is worth its tokens.

    python benchmarks/carryover_retry.py ask --taught FOLDER --answers A.jsonl.gz --judged J.jsonl \\
        --second B.jsonl.gz
    python benchmarks/carryover.py judge --samples 8 --answers B.jsonl.gz --judged JB.jsonl
    python benchmarks/carryover_retry.py report --second B.jsonl.gz --judged JB.jsonl

`ask` takes the answers of `carryover.py answer` that were judged and are not correct. For each it asks twice:
`retry` shows the answer with the judge's feedback, `fresh` asks the problem again with another seed. `report`
compares both by the share of correct answers and by correct answers for equal tokens. Each first answer has
two second ones, so `--samples` of the judge is twice that of the first; KERNELBENCH_ROOT is set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
from carryover import packed_rows, problems_of, read_rows
from machine import describe_machine

from kernel_core.config import PolicyConfig, RolloutConfig, SamplingConfig
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.dialogue.rollout import seed_of
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.evaluation.statistics import mean_difference
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.records import Candidate, Evaluation, Problem

WAYS = ("retry", "fresh")


def main() -> None:
    """Ask, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=("ask", "report"))
    parser.add_argument("--taught", default="", help="folder of the policy that gave the first answers")
    parser.add_argument("--answers", type=Path, default=Path("answers.jsonl.gz"), help="first answers")
    parser.add_argument("--judged", type=Path, default=Path("judged.jsonl"), help="verdicts")
    parser.add_argument("--second", type=Path, default=Path("second.jsonl.gz"), help="second answers")
    parser.add_argument("--suite", nargs="+", default=["kernelbench"], help="as `carryover.py` asked")
    parser.add_argument("--levels", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--limit", type=int, default=200, help="problems of each suite, as there")
    parser.add_argument("--first", type=int, default=0, help="first answers to go on from; 0: all")
    parser.add_argument("--max-new-tokens", type=int, default=1800)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--gpu", default="NVIDIA H100 80GB HBM3", help="as prompts name it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    arguments = parser.parse_args()
    {"ask": _ask, "report": _report}[arguments.stage](arguments)


def _ask(arguments: argparse.Namespace) -> None:
    """Both second answers to each first one that failed."""
    began = time.monotonic()
    on_gpu = arguments.device == "cuda"
    config = PolicyConfig(
        kind="torch",
        model=arguments.taught,
        device=arguments.device,
        dtype="bfloat16" if on_gpu else "float32",
        max_context=5120,
        decoding="static" if on_gpu else "growing",
    )
    policy = TorchPolicy.load(arguments.taught, config)
    rollout = RolloutConfig(
        turns=2,
        exemplars=0,
        template="full",
        gpu=arguments.gpu,
        prompt_budget=3000,
        sampling=SamplingConfig(max_new_tokens=arguments.max_new_tokens, batch_size=arguments.batch),
    )
    asked = [(problem, turn, way) for problem, turn in _failed(arguments) for way in WAYS]
    lines: list[str] = []
    for start in range(0, len(asked), arguments.batch):
        part = asked[start : start + arguments.batch]
        prompts = [
            build_prompt(problem, (), (turn,) if way == "retry" else (), rollout, policy.count_tokens)
            for problem, turn, way in part
        ]
        samples = policy.sample(
            prompts,
            temperature=1.0,
            max_new_tokens=arguments.max_new_tokens,
            seed=[
                seed_of(arguments.seed, "second", problem.id, turn.trajectory, way)
                for problem, turn, way in part
            ],
        )
        for (problem, turn, way), sample in zip(part, samples, strict=True):
            assert sample.prompt_ids is not None and sample.token_ids is not None
            number = len(WAYS) * turn.trajectory + WAYS.index(way)
            row = {"problem": problem.id, "sample": number, "text": sample.text, "way": way}
            row |= {"first": turn.trajectory}
            row |= {"end": sample.finish_reason, "first_verdict": str(turn.evaluation.verdict)}
            row |= {"read": len(sample.prompt_ids), "written": len(sample.token_ids)}
            lines.append(json.dumps(row) + "\n")
        print(f"{len(lines)} of {len(asked)} answers, {time.monotonic() - began:.0f} s", flush=True)
        arguments.second.write_bytes(gzip.compress("".join(lines).encode()))


def _failed(arguments: argparse.Namespace) -> list[tuple[Problem, Turn]]:
    """The first answers that were judged and are not correct, as turns."""
    asked = problems_of(arguments.suite, arguments.levels, arguments.limit)
    problems = {problem.id: problem for problem in asked}
    verdicts = {(row["problem"], row["sample"]): row for row in read_rows(arguments.judged)}
    found = [
        (problems[answer["problem"]], _turn(answer, verdicts[answer["problem"], answer["sample"]]))
        for answer in packed_rows(arguments.answers)
        if verdicts.get((answer["problem"], answer["sample"]), {}).get("feedback")
        and verdicts[answer["problem"], answer["sample"]]["verdict"] != "correct"
    ]
    return found[: arguments.first or None]


def _turn(answer: dict[str, Any], judged: dict[str, Any]) -> Turn:
    candidate = parse_completion(answer["text"], answer["end"])
    evaluation = Evaluation(
        problem_id=answer["problem"],
        candidate_sha=candidate.sha256 if isinstance(candidate, Candidate) else "",
        verdict=judged["verdict"],
        feedback=judged["feedback"],
        gym_version="",
        device="",
        seconds=judged["seconds"],
    )
    return Turn(
        problem_id=answer["problem"],
        trajectory=answer["sample"],
        index=0,
        messages=(),
        completion=Completion(text=answer["text"], finish_reason=answer["end"], policy_version=""),
        candidate=candidate,
        evaluation=evaluation,
    )


def _report(arguments: argparse.Namespace) -> None:
    """A row a level and way, and the difference of both by problem."""
    print(describe_machine())
    frame = pd.DataFrame(packed_rows(arguments.second))
    verdicts = pd.DataFrame(read_rows(arguments.judged))[["problem", "sample", "verdict"]]
    frame = frame.merge(verdicts, on=["problem", "sample"])
    frame = frame[frame.groupby(["problem", "first"])["way"].transform("nunique") == len(WAYS)]
    frame["right"] = frame["verdict"] == "correct"
    parts = frame["problem"].str.split("/")
    frame["group"] = parts.str[1].where(parts.str.len() > 2, parts.str[0])
    for (group, way), part in frame.groupby(["group", "way"]):
        right, written = part["right"].sum(), part["written"].sum()
        both = written + part["read"].sum()
        print(
            f"{group} {way}: {right} of {len(part)} correct ({right / len(part):.1%}); "
            f"{written / len(part):.0f} tokens written and {(both - written) / len(part):.0f} read; "
            f"{1e6 * right / written:.0f} correct a million written, {1e6 * right / both:.0f} of all tokens"
        )
    for name, part in [*frame.groupby("group"), ("all", frame), *frame.groupby("first_verdict")]:
        print(f"{name}: retry less fresh {_difference(part)}")


def _difference(frame: pd.DataFrame) -> str:
    """The mean difference over problems, with its interval."""
    shares = frame.groupby(["problem", "way"])["right"].mean().unstack()
    found = mean_difference(shares["fresh"].tolist(), shares["retry"].tolist())
    interval = "" if found.low is None else f" ({found.low:+.1%} to {found.high:+.1%})"
    return f"{found.value:+.1%}{interval}, {len(shares)} problems"


if __name__ == "__main__":
    main()
