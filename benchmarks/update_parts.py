"""Where the time of an update on several GPUs goes, as its first process sees it.

The rows and the policy of `update_speed.py`; the mean of some updates after one that is not counted. Parts on
the GPU are waited for before and after, so that the whole is a little slower than without.

    python benchmarks/update_parts.py 4 --device cuda
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import update_speed

from kernel_core.config import TrainConfig
from kernel_core.learn import update, update_report
from kernel_core.learn.distributed import data_parallel as share
from kernel_core.learn.distributed import learner_group as team

UPDATES = 5


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("learners", type=int)
    update_speed.add_options(parser)
    arguments = parser.parse_args()
    policy = update_speed.benchmark_policy(arguments)
    config = TrainConfig(
        policy=policy.config, learners=arguments.learners, minibatch_tokens=arguments.batch_tokens
    )
    optimiser = update.new_optimiser(policy.model, config.lr)
    rows = update_speed.benchmark_rows(arguments.rows, policy.model.config.vocab_size)
    spent: Counter[str] = Counter()
    on_gpu = arguments.device == "cuda"
    _time(team, "_tell", "handing rows over", spent, on_gpu=False)
    _time(share.Share, "of", "planning batches", spent, on_gpu=False)
    _time(update, "_collated", "putting batches together", spent, on_gpu=False)
    _time(share.Share, "average_gradients", "averaging gradients", spent, on_gpu)
    _time(update, "clip_and_step", "optimiser", spent, on_gpu)
    _time(update_report.Totals, "gather", "gathering figures", spent, on_gpu)
    whole = team.Team(config, policy, optimiser)
    whole.update(rows)
    spent.clear()
    begun = time.monotonic()
    for _ in range(UPDATES):
        whole.update(rows)
        if on_gpu:
            torch.cuda.synchronize()
    total_s = (time.monotonic() - begun) / UPDATES
    whole.close()
    parts = {name: round(seconds / UPDATES, 4) for name, seconds in spent.items()}
    print(json.dumps({"learners": arguments.learners, "update_s": round(total_s, 3), "of_it_s": parts}))


def _time(owner: Any, name: str, what: str, spent: Counter[str], on_gpu: bool) -> None:
    """Have a function note how long it takes."""
    real: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **named: Any) -> Any:
        if on_gpu:
            torch.cuda.synchronize()
        begun = time.monotonic()
        result = real(*args, **named)
        if on_gpu:
            torch.cuda.synchronize()
        spent[what] += time.monotonic() - begun  # type: ignore[assignment]
        return result

    setattr(owner, name, timed)


if __name__ == "__main__":
    main()
