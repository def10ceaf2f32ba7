"""Claim: a pretrained code model that is taught the generators' kernels answers KernelBench problems.

    python benchmarks/carryover.py draw --work W
    python benchmarks/carryover.py teach --work W --conversations-file W/conversations.jsonl.gz --model FOLDER
    python benchmarks/carryover.py answer --taught W/cold_start --limit 100 --samples 4 --answers A.jsonl.gz
    python benchmarks/carryover.py judge --answers A.jsonl.gz --judged J.jsonl     # KERNELBENCH_ROOT is set
    python benchmarks/carryover.py report --judged J.jsonl
    python benchmarks/carryover.py report --against frozen --judged rl-0=A.jsonl frozen-0=B.jsonl

`draw` takes problems and kernels from the generators; `teach` trains all weights and leaves the policy in
`W/cold_start`; `answer` asks a taught policy, or without `--taught` the model as it is; `judge` judges what
is not judged yet, so that answers can be judged on another day and machine. `--suite` of both takes one or
more of `kernelbench`, `modules` (held-out problems), `unseen` (of families held out whole) and folders, such
as one of harvested problems. With `--learners N`, N GPUs of this host share each update of `teach`. With
`--judge-device cpu --judges 14` correctness is judged at small sizes, in a fraction of a GPU judge's time.
`report` prints a table of all groups of problems, with each arm's figures and the paired differences between
arms.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from machine import describe_machine

from kernel_core.config import (
    ColdStartConfig,
    GymConfig,
    PolicyConfig,
    ProblemsConfig,
    RolloutConfig,
    SamplingConfig,
    TrainConfig,
)
from kernel_core.config.corpus import FamilyGroup
from kernel_core.corpus.decontaminate import Decontaminator, evaluation_problems
from kernel_core.corpus.generator_source import exemplars_of, slips_of
from kernel_core.corpus.kernelbench_leaks import known_kernelbench
from kernel_core.corpus.measured_grades import NAMED_GRADES, fastest_grades
from kernel_core.corpus.normalise import fingerprint
from kernel_core.corpus.registry import Source, find_source, read_registry
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.dialogue.rollout import seed_of
from kernel_core.errors import GymUnavailable
from kernel_core.evaluation.groups import (
    Judged,
    difference_rows,
    figure_rows,
    group_of,
    pairs_of,
    read_answers,
)
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.cold_start.dataset import Conversation, build_conversations
from kernel_core.learn.cold_start.sft import cold_start, starting_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.problems.families import TRAINED
from kernel_core.problems.generate import generate
from kernel_core.problems.generators import ENDLESS_SUITES, draw_graphs
from kernel_core.problems.graded import Generated
from kernel_core.problems.load import load_problems
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
from kernel_core.problems.modules.groups import GROUPS
from kernel_core.problems.renaming import with_drawn_names
from kernel_core.records import Evaluation, Exemplar, NotJudged, Problem, sha256_text
from kernel_core.runs.configure import build
from kernel_core.runs.placement import placed
from kernel_core.store import Store

JUDGED_AT_ONCE = {"cuda": 24, "cpu": 4}
"""Answers in a request, by the kind of judge: a GPU judge overlaps them, a CPU judge takes one by one."""
MORE: dict[FamilyGroup, int] = {"convolutions": 4, "chains": 2, "indexed": 1, "scarce": 6}
"""Groups of which a draw takes more, besides what all families give: one in so many of `--modules`."""
SPLIT_SEED = 20261125
"""The fixed half of KernelBench that `--limit 100` asks."""


def main() -> None:
    """One of the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=tuple(STAGES))
    parser.add_argument("--work", default="carryover")
    parser.add_argument("--model", default="", help="folder of a Hugging Face model")
    parser.add_argument("--taught", default="", help="folder of a policy to ask; empty: the model as it is")
    parser.add_argument("--modules", type=int, default=9000, help="problems of the suite `modules`")
    parser.add_argument("--generated", type=int, default=1500, help="problems of the suite `generated`")
    parser.add_argument("--graphs", type=int, default=0, help="problems of the suite `graphs`")
    parser.add_argument("--exemplars", type=Path, help="more kernels for `draw`, of swapped_layers.py")
    parser.add_argument("--conversations", type=int, default=24000)
    parser.add_argument(
        "--repairs",
        type=float,
        default=0.0,
        help="share of second turns in `draw`: a faulty kernel with feedback, answered by a right one",
    )
    parser.add_argument("--repairs-judged", type=int, default=600, help="different faulty kernels in them")
    parser.add_argument("--conversations-file", nargs="+", default=[], help="of `draw`, for `teach`")
    parser.add_argument(
        "--leave-out",
        nargs="+",
        default=[],
        choices=sorted({*FAMILIES, *TRAINED}),
        metavar="FAMILY",
        help="families that `draw` leaves for practice without a teacher",
    )
    parser.add_argument("--minibatch-tokens", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--lr", type=float, default=4e-5)
    parser.add_argument("--learners", type=int, default=1, help="processes that share `teach`, a GPU each")
    parser.add_argument(
        "--suite", nargs="+", default=["kernelbench"], help="or modules, unseen, folders of problems"
    )
    parser.add_argument("--levels", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--limit", type=int, default=100, help="problems of each suite")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=1800)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--answers", type=Path, default=Path("answers.jsonl.gz"))
    parser.add_argument(
        "--judged",
        nargs="+",
        default=["judged.jsonl"],
        help="a file; for `report` also ARM=FILE or ARM-SEED=FILE, several files of an arm in one table",
    )
    parser.add_argument("--against", default="", help="the arm that others are compared with; else the first")
    parser.add_argument("--gpu", default="NVIDIA H100 80GB HBM3", help="as prompts name it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="of the policy")
    parser.add_argument("--judge-device", choices=("cpu", "cuda"), help="by itself as --device")
    parser.add_argument(
        "--sizes", default="own", help="`small` judges KernelBench on a CPU; others have sizes of their own"
    )
    parser.add_argument("--judges", type=int, default=1, help="processes on a CPU, GPUs otherwise")
    arguments = parser.parse_args()
    arguments.judge_device = arguments.judge_device or arguments.device
    STAGES[arguments.stage](arguments)


def _policy(arguments: argparse.Namespace) -> PolicyConfig:
    on_gpu = arguments.device == "cuda"
    return PolicyConfig(
        kind="torch",
        model=arguments.model,
        device=arguments.device,
        dtype="bfloat16" if on_gpu else "float32",
        max_context=5120,
        decoding="static" if on_gpu else "growing",
    )


def _rollout(arguments: argparse.Namespace) -> RolloutConfig:
    sampling = SamplingConfig(max_new_tokens=arguments.max_new_tokens, batch_size=arguments.batch)
    return RolloutConfig(
        turns=1,
        exemplars=0,
        template="full",
        gpu=arguments.gpu,
        prompt_budget=3000,
        sampling=sampling,
    )


def _taught_kernels(made: Sequence[Generated], source: Source) -> list[Exemplar]:
    """The kernels of the grades that measurements chose, all alike: their speed was measured."""
    chosen = fastest_grades()
    return [
        exemplar.model_copy(update={"grade": "tuned"})
        for one in made
        for exemplar in exemplars_of(one, source)
        if exemplar.grade in chosen.get(exemplar.family, NAMED_GRADES)
    ]


def _draw(arguments: argparse.Namespace) -> None:
    """Problems and kernels of both generators as conversations, into `W/conversations.jsonl.gz`."""
    began = time.monotonic()
    source = find_source("generator", read_registry())
    # The first two do the work of families that are held out whole.
    left_out = {"gated", "embedding", *arguments.leave_out}
    families, generated = ([name for name in one if name not in left_out] for one in (FAMILIES, TRAINED))
    made = list(generate_modules("train", arguments.modules, arguments.seed, families))
    for number, (name, part) in enumerate(MORE.items(), start=1):
        group = GROUPS[name]
        kept = [name for name in group if name not in left_out]
        count = arguments.modules // part * len(kept) // len(group)
        made += generate_modules("train", count, arguments.seed + number, kept)
    chains = generate("train", arguments.generated, arguments.seed, generated)
    made += [with_drawn_names(one) for one in chains]  # the other suite has drawn names by itself
    made += _graphs(arguments, source)
    exemplars = _taught_kernels(made, source)
    if arguments.exemplars:
        lines = arguments.exemplars.read_text().splitlines()
        exemplars += [Exemplar.model_validate_json(line) for line in lines]
    if arguments.repairs:  # faulty kernels are shown with the judge's words, and never learned
        rng = random.Random(f"slips {arguments.seed}")
        shown = [exemplar for one in made for exemplar in exemplars_of(one, source)]
        faulty = [exemplar for exemplar in shown if exemplar.grade.startswith("mistake")]
        exemplars += [*faulty, *slips_of(exemplars, rng)]
    print(f"{len(made)} problems, {len(exemplars)} kernels, {time.monotonic() - began:.0f} s", flush=True)
    judges = max(1, (os.cpu_count() or 2) // 2)
    with open_gym(GymConfig(workers=judges)) as gym:  # it judges what second turns look back on
        conversations = build_conversations(exemplars, gym, _cold_start(arguments), _rollout(arguments))
    kinds = Counter(one.kind for one in conversations)
    print(f"second turns: {kinds['repair']} of {len(conversations)}", flush=True)
    lines = "".join(one.model_dump_json() + "\n" for one in conversations)
    Store(arguments.work).write("conversations.jsonl.gz", gzip.compress(lines.encode(), 6))
    print(f"{len(conversations)} conversations, {time.monotonic() - began:.0f} s", flush=True)


def _graphs(arguments: argparse.Namespace, source: Source) -> list[Generated]:
    """Problems of the suite `graphs` that no rule of decontamination drops; prints how many each one drops.

    KernelBench is among the suites they are held against where `KERNELBENCH_ROOT` names a checkout.
    """
    drawn = draw_graphs(arguments.graphs, arguments.seed, (), {}) if arguments.graphs else []
    known = known_kernelbench()
    suites = ("dojo", "kernelbench") if known else ("dojo",)
    rules, dropped, kept = Decontaminator(evaluation_problems(suites), suites), Counter[str](), []
    for made in drawn:
        exemplar = next(exemplars_of(made, source))
        leak = (known and known.leak(made.problem)) or rules.leak(exemplar, fingerprint(made.problem.source))
        if leak:
            dropped[f"{leak[0]} ({leak[1].partition('/')[0]})"] += 1
        else:
            kept.append(with_drawn_names(made))
    print(f"graphs: {len(kept)} of {len(drawn)} problems kept, dropped: {dict(dropped)}", flush=True)
    return kept


def _cold_start(arguments: argparse.Namespace) -> ColdStartConfig:
    return ColdStartConfig(
        steps=arguments.steps,
        minutes=arguments.minutes,
        conversations=arguments.conversations,
        batch_tokens=arguments.batch_tokens,
        checkpoint_minutes=60.0,
        shared=arguments.learners > 1,
        lr=arguments.lr,
        repair_share=arguments.repairs,
        judged=arguments.repairs_judged,
        mistake_share=0.0,
        naive_share=0.0,
        lazy_share=0.0,
        seed=arguments.seed,
    )


def _teach(arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    conversations = [
        Conversation.model_validate(row)
        for name in arguments.conversations_file
        for row in packed_rows(Path(name))
    ]
    print(f"{len(conversations)} conversations, {time.monotonic() - began:.0f} s", flush=True)
    config = _cold_start(arguments)
    asked = TrainConfig(policy=_policy(arguments), learners=arguments.learners, cold_start=config)
    training = placed(asked, torch.cuda.device_count())
    policy = starting_policy(training.policy_to_teach, conversations, config.seed)

    def said(label: str, done: int, total: int) -> None:
        if done % 20 == 0:
            print(f"{label} {done} of {total}, {time.monotonic() - began:.0f} s", flush=True)

    store = Store(arguments.work).child("cold_start")
    report = cold_start(policy, conversations, config, store, said, arguments.minibatch_tokens, training)
    print(report.model_dump_json(), flush=True)
    for row in store.lines("metrics.jsonl"):
        print(json.dumps(row), flush=True)


def _answer(arguments: argparse.Namespace) -> None:
    """Ask every problem and keep the answers before any is judged, since they outlive the machine."""
    began = time.monotonic()
    problems = problems_of(arguments.suite, arguments.levels, arguments.limit)
    rollout = _rollout(arguments)
    policy = TorchPolicy.load(arguments.taught or arguments.model, _policy(arguments))
    asked = [(problem, sample) for problem in problems for sample in range(arguments.samples)]
    lines: list[str] = []
    for start in range(0, len(asked), arguments.batch):
        part = asked[start : start + arguments.batch]
        samples = policy.sample(
            [build_prompt(problem, (), (), rollout, policy.count_tokens) for problem, _ in part],
            temperature=1.0,
            max_new_tokens=arguments.max_new_tokens,
            seed=[seed_of(arguments.seed, problem.id, number) for problem, number in part],
        )
        for (problem, number), sample in zip(part, samples, strict=True):
            row = {"problem": problem.id, "sample": number, "text": sample.text, "end": sample.finish_reason}
            lines.append(json.dumps(row) + "\n")
        print(f"{len(lines)} answers, {time.monotonic() - began:.0f} s", flush=True)
        arguments.answers.write_bytes(gzip.compress("".join(lines).encode()))


def _judge(arguments: argparse.Namespace) -> None:
    """Judge the answers that `--judged` does not have yet, problem by problem in an order without meaning.

    A problem's inputs and expected outputs are made once for its answers. A run that is cut has judged a fair
    part of the problems.
    """
    began = time.monotonic()
    asked = problems_of(arguments.suite, arguments.levels, arguments.limit, arguments.sizes)
    problems = {problem.id: problem for problem in asked}
    answers = packed_rows(arguments.answers)
    judged = Path(arguments.judged[0])
    known = {(row["problem"], row["sample"]) for row in read_rows(judged)}
    todo = [row for row in answers if (row["problem"], row["sample"]) not in known]
    todo = [row for row in todo if row["problem"] in problems and row["sample"] < arguments.samples]
    todo = sorted(todo, key=lambda row: (sha256_text(row["problem"]), row["sample"]))
    size = JUDGED_AT_ONCE[arguments.judge_device]
    parts = [todo[start : start + size] for start in range(0, len(todo), size)]
    gym_config = GymConfig(device=arguments.judge_device, workers=arguments.judges)
    under_way: deque[tuple[list[dict[str, Any]], Future[list[Evaluation | NotJudged | None]]]] = deque()
    # Two parts a judge are under way, so that one slow answer keeps no judge idle.
    with (
        open_gym(gym_config) as gym,
        ThreadPoolExecutor(2 * arguments.judges) as threads,
        judged.open("a") as file,
    ):
        done = 0
        while parts or under_way:
            while parts and len(under_way) < 2 * arguments.judges:
                part = parts.pop(0)
                requests = [
                    JudgeRequest(
                        problem=problems[row["problem"]],
                        candidate=parse_completion(row["text"], row["end"]),
                        seed=arguments.seed,
                    )
                    for row in part
                ]
                under_way.append((part, threads.submit(_evaluations, gym, requests)))
            part, judging = under_way.popleft()
            for row, evaluation in zip(part, judging.result(), strict=True):
                kept = {"problem": row["problem"], "sample": row["sample"], "verdict": "not judged"}
                if isinstance(evaluation, Evaluation):
                    kept |= {"verdict": evaluation.verdict, "speedup": evaluation.speedup}
                    kept |= {"evaluation": evaluation.model_dump(mode="json")}
                elif evaluation is not None:
                    kept |= {"reason": evaluation.reason}
                file.write(json.dumps(kept) + "\n")
            file.flush()
            done += len(part)
            seconds = time.monotonic() - began
            print(f"{done} of {len(todo)} judged, {seconds:.0f} s", flush=True)
            if parts and seconds > arguments.minutes * 60:
                parts.clear()
                print("stopped in time; the same command goes on", flush=True)
    _report(arguments)


def _evaluations(gym: Gym, requests: Sequence[JudgeRequest]) -> list[Evaluation | NotJudged | None]:
    """Judge all requests, one by one where the gym fails on all together; None where it fails on one."""
    try:
        return list(gym.judge(requests))
    except GymUnavailable:
        return [None] if len(requests) == 1 else [_evaluations(gym, [one])[0] for one in requests]


def problems_of(
    suites: Sequence[str], levels: Sequence[int], limit: int, sizes: str = "own"
) -> list[Problem]:
    """Whole levels, the fixed half of them that `--limit 100` names, held-out problems, or a folder's."""
    found: list[Problem] = []
    for name in suites:
        suite, families = ("modules", sorted(RESERVED)) if name == "unseen" else (name, [])
        split = "held_out" if suite in ENDLESS_SUITES else "all"
        settings = {"suite": suite, "families": families, "split": split, "sizes": sizes}
        settings |= {"levels": levels, "limit": limit, "seed": SPLIT_SEED}
        found += load_problems(build(ProblemsConfig, settings))
    return list({problem.id: problem for problem in found}.values())


def _report(arguments: argparse.Namespace) -> None:
    """Verdicts by group, then the figures of each arm, and the differences between arms over problems."""
    print(describe_machine())
    arms: dict[str, list[Judged]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for text in arguments.judged:
        arm, _, path = text.rpartition("=")
        rows = read_rows(Path(path))
        arms.setdefault(arm or Path(path).stem, []).extend(read_answers(rows))
        counts.update((group_of(row["problem"]), row["verdict"]) for row in rows)
    verdicts = pd.Series(counts).unstack(fill_value=0)
    for table in (verdicts, *_tables(arms, arguments.against)):
        print(f"\n{table.to_string(na_rep='–')}")


def _tables(arms: dict[str, list[Judged]], against: str) -> list[pd.DataFrame]:
    """Figures, and differences where there are several arms."""
    differences = difference_rows(arms, pairs_of(arms, against))
    tables = [pd.DataFrame(rows) for rows in (figure_rows(arms), differences) if rows]
    return [
        table.set_index(["group", "arm"]).replace("", pd.NA).dropna(axis=1, how="all") for table in tables
    ]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Lines of JSON; none where there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def packed_rows(path: Path) -> list[dict[str, Any]]:
    """Lines of JSON in a packed file."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


STAGES = {
    "draw": _draw,
    "teach": _teach,
    "answer": _answer,
    "judge": _judge,
    "report": _report,
}


if __name__ == "__main__":
    main()
