"""Claim: the speed-up that best of N reports for its winner has no bias by the choice of the luckiest.

Plants candidates of known speed, gives each judgement the noise of timings that this machine just measured,
and lets `select` choose and confirm a winner. The first judgement's speed-up of the winner is printed beside
the confirmed one, as the mean ratio to the planted speed with its 95 % interval over repetitions.

    python benchmarks/luckiest.py --device cpu
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from machine import describe_machine

from kernel_core.evaluation.winners import select
from kernel_core.gym.contract.requests import JudgeRequest, TakenOut
from kernel_core.optimize.authors import AuthoredCandidate
from kernel_core.optimize.search import group_of
from kernel_core.problems.load import load_file
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, Problem, Timing, Verdict

PROBLEM = Path(__file__).parents[1] / "data" / "problems" / "huber_mean.py"
CALLS = 30
"""Calls of a timing, which is their median."""
SPREAD = 0.05
"""Standard deviation of the planted speeds' logarithms: kernels of one problem are close."""
REFERENCE_MS = 1.0


class PlantedGym:
    """A gym whose kernels have known times, and whose timings have measured noise."""

    version = "planted"
    taken_out: tuple[TakenOut, ...] = ()

    def __init__(self, times_ms: dict[str, float], noise: Sequence[float], rng: random.Random) -> None:
        self._times_ms, self._noise, self._rng = times_ms, noise, rng

    def judge(self, requests: Sequence[JudgeRequest], progress: Progress = silent) -> list[Evaluation]:
        """Return a correct evaluation a request, timed with noise."""
        return [self._evaluation(request) for request in requests]

    def close(self) -> None:
        """Nothing is held."""

    def _evaluation(self, request: JudgeRequest) -> Evaluation:
        assert isinstance(request.candidate, Candidate)
        sha = request.candidate.sha256
        times = [ms * self._rng.choice(self._noise) for ms in (self._times_ms[sha], REFERENCE_MS)]
        timing, reference = (
            Timing(median_ms=ms, ci_low_ms=ms, ci_high_ms=ms, num_calls=CALLS, clock="wall") for ms in times
        )
        return Evaluation(
            problem_id=request.problem.id,
            candidate_sha=sha,
            verdict=Verdict.CORRECT,
            trials_passed=1,
            trials=1,
            timing=timing,
            reference_timing=reference,
            speedup=reference.median_ms / timing.median_ms,
            feedback="correct",
            gym_version=self.version,
            device="cuda",
            seconds=0.0,
        )


def main() -> None:
    """Measure noise, plant, choose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--timings", type=int, default=1000, help="timings whose scatter is the noise")
    arguments = parser.parse_args()
    noise = relative_noise(arguments.device, arguments.timings)
    logs = list(map(math.log, noise))
    print(f"{describe_machine()}; {len(noise)} timings, standard deviation {statistics.stdev(logs):.2%}")
    rng, problem = random.Random(0), load_file(PROBLEM)
    first, confirmed = zip(
        *(_repetition(problem, arguments.candidates, noise, rng) for _ in range(arguments.repetitions)),
        strict=True,
    )
    print(f"winner of {arguments.candidates}, reported over planted speed-up, {len(first)} repetitions:")
    for name, its in (("first judgement", first), ("confirmed", confirmed)):
        mean, half = statistics.mean(its), 1.96 * statistics.stdev(its) / math.sqrt(len(its))
        print(f"  {name:16} {mean:.4f} ({mean - half:.4f} … {mean + half:.4f})")


def relative_noise(device: str, count: int) -> list[float]:
    """Return timings of one matrix product over their mean, each the median of `CALLS` calls."""
    size = 192 if device == "cpu" else 1024
    x = torch.randn(size, size, device=device)
    timings = [_timing_ms(x) for _ in range(count + 10)][10:]
    mean = statistics.mean(timings)
    return [timing / mean for timing in timings]


def _timing_ms(x: torch.Tensor) -> float:
    calls = []
    for _ in range(CALLS):
        if x.is_cuda:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            x @ x
            end.record()
            torch.cuda.synchronize()
            calls.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            x @ x
            calls.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(calls)


def _repetition(
    problem: Problem, count: int, noise: Sequence[float], rng: random.Random
) -> tuple[float, float]:
    """Return the winner's speed-up of the first and of the second judgement, over the planted one."""
    candidates = [Candidate.from_source(f"# {index}\n") for index in range(count)]
    times_ms = {c.sha256: REFERENCE_MS / (1.5 * rng.lognormvariate(0.0, SPREAD)) for c in candidates}
    gym = PlantedGym(times_ms, noise, rng)
    outcomes = gym.judge([JudgeRequest(problem=problem, candidate=c, seed=0) for c in candidates])
    planted = [AuthoredCandidate(author="planted", candidate=candidate) for candidate in candidates]
    group = group_of(problem.id, planted, outcomes)
    winner = select(problem, group, gym, "measured", seed=0).winner
    assert winner is not None and winner.speedup is not None and winner.ranked.evaluation.speedup is not None
    speedup = REFERENCE_MS / times_ms[winner.ranked.candidate.sha256]
    return winner.ranked.evaluation.speedup / speedup, winner.speedup / speedup


if __name__ == "__main__":
    main()
