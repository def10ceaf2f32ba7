"""Claim: fast judging accepts no cheat that the full judgement refuses, and takes half of its time.

Judges the answers of the shipped policy, and every file of `tests/exploits/` that ends, both ways with one
worker. Prints the seconds of each phase by verdict, and each pair of verdicts that differ.

    python benchmarks/fast_judging.py --problems 24 --answers 8
    python benchmarks/fast_judging.py --problems 24 --answers 4 --device cuda --candidates answers
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from machine import describe_machine

from flows.presets import preset
from kernel_core.config import GymConfig, ProblemsConfig, TrainConfig
from kernel_core.dialogue.rollout import roll_out
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.policy import open_policy
from kernel_core.problems.load import load_file, load_problems
from kernel_core.records import Candidate, Evaluation
from kernel_core.runs.configure import build

EXPLOITS = Path(__file__).parents[1] / "tests" / "exploits"
KINDS, CHEATING = ("honest", "wrong"), "cheating"
ANSWERS = "answers"
SEED = 11


def main() -> None:
    """Judge both ways, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", type=int, default=24, help="problems of the policy's answers")
    parser.add_argument("--answers", type=int, default=8, help="answers a problem")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the judge")
    parser.add_argument(
        "--candidates",
        nargs="+",
        choices=(ANSWERS, *KINDS, CHEATING),
        default=(ANSWERS, *KINDS, CHEATING),
        help="the policy's answers, or files",
    )
    arguments = parser.parse_args()
    print(f"Machine: {describe_machine()}.\n")
    with open_gym(GymConfig(device=arguments.device, workers=1, deadline_s=120.0)) as gym:
        if ANSWERS in arguments.candidates:
            _compare(
                "answers of the shipped policy", _answers(gym, arguments.problems, arguments.answers), gym
            )
        for kind, requests in _files().items():
            if kind in arguments.candidates:
                _compare(f"{kind} files", requests, gym)


def _answers(gym: Gym, num_problems: int, num_answers: int) -> dict[str, JudgeRequest]:
    config = build(TrainConfig, preset("train", "learn")["config"])
    problems = load_problems(ProblemsConfig(limit=num_problems, seed=SEED))
    rollout = config.rollout.model_copy(update={"turns": 1})
    policy = open_policy(config.policy, None)
    rolled = roll_out(policy, gym, problems, None, rollout, group_size=num_answers, seed=SEED)
    return {
        f"{problem.id} {number}": JudgeRequest(
            problem=problem, candidate=trajectory.turns[0].candidate, seed=SEED
        )
        for problem, group in zip(problems, rolled.groups, strict=True)
        for number, trajectory in enumerate(group.trajectories)
    }


def _files() -> dict[str, dict[str, JudgeRequest]]:
    """Requests by the kind of file: honest, wrong, and all others, which cheat."""
    found: dict[str, dict[str, JudgeRequest]] = {}
    for file in sorted(EXPLOITS.rglob("*.py")):
        text = file.read_text()
        named = re.search(r"^# problem: (\S+)$", text, re.MULTILINE)
        if named is None or "# deadline:" in text:
            continue
        kind = next((kind for kind in KINDS if file.stem.startswith(kind)), CHEATING)
        problem = load_file(EXPLOITS / "problems" / f"{named[1]}.py")
        candidate = Candidate.from_source(text)
        found.setdefault(kind, {})[file.stem] = JudgeRequest(problem=problem, candidate=candidate, seed=SEED)
    return found


def _compare(title: str, requests: dict[str, JudgeRequest], gym: Gym) -> None:
    full = gym.judge(list(requests.values()))
    fast = gym.judge([one.model_copy(update={"fast": True}) for one in requests.values()])
    differing = {
        name: (str(one.verdict), str(other.verdict))
        for name, one, other in zip(requests, full, fast, strict=True)
        if one.verdict is not other.verdict
    }
    seconds = [sum(one.seconds for one in _distinct(found)) for found in (full, fast)]
    print(f"## {title}: {len(requests)}, {len(differing)} with another verdict\n")
    print(f"{seconds[0]:.1f} s in full, {seconds[1]:.1f} s fast\n")
    print("| in full | fast | candidates |\n|---|---|---|")
    for (one, other), count in Counter(differing.values()).items():
        names = [name for name, pair in differing.items() if pair == (one, other)]
        print(f"| {one} | {other} | {count}: {', '.join(names)} |")
    print("\n| verdict in full | different candidates | s | phases |\n|---|---|---|---|")
    for verdict in dict.fromkeys(str(one.verdict) for one in full):
        _print_row(verdict, [one for one in _distinct(full) if str(one.verdict) == verdict])
    print()


def _distinct(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Equal candidates of a problem are judged once."""
    return list({(one.problem_id, one.candidate_sha): one for one in evaluations}.values())


def _print_row(verdict: str, evaluations: Sequence[Evaluation]) -> None:
    phases: Counter[str] = Counter()
    for one in evaluations:
        phases.update(one.phases_s)
    told = ", ".join(f"{name} {s:.1f}" for name, s in phases.most_common(7))
    print(f"| {verdict} | {len(evaluations)} | {sum(one.seconds for one in evaluations):.1f} | {told} |")


if __name__ == "__main__":
    main()
