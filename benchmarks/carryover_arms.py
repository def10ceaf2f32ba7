"""Claim: on the same judged answers, RL teaches a cold-started model more than the controls do.

    python benchmarks/carryover_arms.py --arm rl --seed 0 --model COLD_START --work W \\
        --suite modules FOLDER --candidates 768 --minutes 9

Trains one arm (`rl`, `expert_iteration`, `frozen`, `rl_shuffled`) from one cold start with LoRA adapters, and
leaves them in `W/ARM-SEED/policy`. Each suite gives an equal part of a step's problems. A run that was cut
goes on from its newest checkpoint with the same command. `carryover.py answer --taught W/ARM-SEED/policy`
asks the result; its stages `judge` and `report` measure it.

`--stage correct --judge-device cpu --judges 14` rewards correctness at small sizes, on processors that the
GPU does not need, so that several arms share a GPU; kernels are interpreted and not compiled. `--stage speed`
needs the GPU judge.
"""

from __future__ import annotations

import argparse
from typing import Any

from machine import describe_machine

from kernel_core.config import TrainConfig
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.learn.loop import Trainer
from kernel_core.policy import open_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.runs.configure import build
from kernel_core.store import Store

ARMS = ("rl", "expert_iteration", "frozen", "rl_shuffled")
PROMPT_TOKENS = 3200
PROBE_NEVER = 1_000_000
"""Probes cost judged answers that no arm learns from; what each arm learned is measured afterwards."""


def main() -> None:
    """Train one arm, a printed line a step."""
    arguments = _arguments()
    config = _config(arguments)
    store = Store(arguments.work).child(f"{arguments.arm}-{arguments.seed}")
    print(f"{arguments.arm}, seed {arguments.seed}, on {describe_machine()}", flush=True)
    with open_gym(config.gym, store.child("judged")) as gym:
        policy = open_policy(config.policy)
        if not isinstance(policy, TorchPolicy):
            raise SystemExit(f"--model {arguments.model} is no folder of a model; give one")
        trainer = Trainer(config, store, policy, gym)
        try:
            while not trainer.done:
                print(trainer.step().model_dump_json(), flush=True)
        except KeyboardInterrupt:
            print("interrupted; the policy is kept as it is now", flush=True)
        policy.save(store.child("policy"))
        trainer.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", required=True, help="folder of the cold start")
    parser.add_argument("--suite", nargs="+", default=["modules"], help="or folders of problems")
    parser.add_argument("--work", default="arms")
    parser.add_argument("--candidates", type=int, default=768, help="judged answers in all")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--problems", type=int, default=12, help="a step")
    parser.add_argument("--group", type=int, default=8, help="answers a problem")
    parser.add_argument("--batch", type=int, default=128, help="answers written at a time")
    parser.add_argument("--sizes", choices=("own", "half", "quarter"), default="quarter")
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--updates", type=int, default=1, help="passes over the answers of a step")
    parser.add_argument("--rank", type=int, default=32, help="of the LoRA adapters")
    parser.add_argument("--max-new-tokens", type=int, default=1600)
    parser.add_argument("--minibatch-tokens", type=int, default=16384, help="fewer where arms share a GPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="of the policy")
    parser.add_argument("--stage", choices=("correct", "speed"), default="speed")
    parser.add_argument("--judge-device", choices=("cpu", "cuda"), help="by itself as --device")
    parser.add_argument("--judges", type=int, default=1, help="processes on a CPU, GPUs otherwise")
    parser.add_argument(
        "--in-full", type=float, default=1.0, help="share of answers judged in full in stage `correct`"
    )
    arguments = parser.parse_args()
    arguments.judge_device = arguments.judge_device or arguments.device
    return arguments


def _config(arguments: argparse.Namespace) -> TrainConfig:
    on_gpu = arguments.device == "cuda"
    settings: dict[str, Any] = {
        "method": arguments.arm,
        "seed": arguments.seed,
        "steps": 100_000,
        "candidates": arguments.candidates,
        "minutes": arguments.minutes,
        "problems_per_step": arguments.problems,
        "group_size": arguments.group,
        "lr": arguments.lr,
        "updates_per_step": arguments.updates,
        "minibatch_tokens": arguments.minibatch_tokens,
        "judged_in_full": arguments.in_full,
        "checkpoint_minutes": 3.0,
        "keep_checkpoints": 1,
        "problems": {
            "mix": [{"suite": suite, "weight": 1.0} for suite in arguments.suite],
            "sizes": arguments.sizes,
        },
        "curriculum": {"only": arguments.stage, "probe_every": PROBE_NEVER, "probe_problems": 1},
        "gym": {
            "device": arguments.judge_device,
            "workers": arguments.judges,
            "compile_gate": arguments.judge_device == "cuda",  # on a CPU it is most of a verdict's time
        },
        "policy": {
            "kind": "torch",
            "model": arguments.model,
            "device": arguments.device,
            "dtype": "bfloat16" if on_gpu else "float32",
            "max_context": PROMPT_TOKENS + arguments.max_new_tokens,
            "lora_rank": arguments.rank,
            "decoding": "static" if on_gpu else "growing",
        },
        "rollout": {
            "turns": 1,
            "exemplars": 0,
            "template": "full",
            "prompt_budget": PROMPT_TOKENS,
            "overlap": False,
            "sampling": {
                "max_new_tokens": arguments.max_new_tokens,
                "batch_size": arguments.batch,
            },
        },
    }
    return build(TrainConfig, settings)


if __name__ == "__main__":
    main()
