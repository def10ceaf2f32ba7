"""A vLLM server that training starts, beside the static decoder and `generate`: its rate, and its freshness.

    python benchmarks/vllm_sampling.py [--model FOLDER] [--python PYTHON] [--budget 180] [--out FILE]
                                       [--ways adapters,full,static,generate]

Qwen2.5-Coder-0.5B, or random weights of its shape where no folder is given. 256 answers of 1,024 tokens after
prompts of 2,048, eight to a prompt. One server writes with an adapter of rank 16, the next with full weights
that are pushed to it. Either shares its GPU with the trainer; the first also sleeps and wakes.

Each figure is a line of JSON, printed and written as soon as it is known. The budget ends the run whatever
hangs, and a way that would not fit into the rest of it is left out. `generate` stops by itself when its time
is over, and its rate is that of the tokens it had.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, StoppingCriteria

from kernel_core.config import PolicyConfig, TrainConfig
from kernel_core.learn.step_memory import QWEN
from kernel_core.policy.publish import Publisher
from kernel_core.policy.sampler import InlineSampler, Sampler, open_sampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.runs.placement import placed
from kernel_core.store import Store

BATCH, GROUP, PROMPT, NEW, RANK = 256, 8, 2048, 1024, 16
RATE_S = 30.0
"""A guess of the seconds that a server needs for all answers."""
SMALL = {"batch": 16, "group": 4, "prompt": 64, "new": 16}
"""On a CPU: it shows that the script works, and nothing else."""


class Told:
    """Lines of JSON with the seconds since the beginning."""

    def __init__(self, out: Path | None) -> None:
        self.begun = time.monotonic()
        self._out = out

    def left(self, budget: float) -> float:
        """Seconds until the budget is spent."""
        return budget - (time.monotonic() - self.begun)

    def __call__(self, **values: Any) -> None:
        """Print and write one."""
        line = json.dumps({"at_s": round(time.monotonic() - self.begun, 1), **values})
        print(line, flush=True)
        if self._out is not None:
            with self._out.open("a") as file:
                file.write(line + "\n")


def main() -> None:
    """Each way in turn, the servers first; an error in one is a line, and the others go on."""
    arguments = _arguments()
    told = Told(arguments.out)
    with tempfile.TemporaryDirectory() as scratch:
        watchdog = threading.Timer(arguments.budget, _end, (told, Path(scratch)))
        watchdog.daemon = True
        watchdog.start()
        told(
            machine=describe_machine(),
            model=arguments.model or "random weights of Qwen2.5-Coder-0.5B's shape",
        )
        folder = arguments.model or _random_model(Path(scratch) / "base")
        told(done="model")
        for name in arguments.ways.split(","):
            way, least_s = WAYS[name]
            if told.left(arguments.budget) < least_s:
                told(way=name, left_out=f"it takes {least_s:.0f} s, and fewer are left")
                continue
            try:
                way(arguments, folder, Path(scratch), told)
            except Exception as error:
                told(way=name, error=f"{type(error).__name__}: {error}"[:2000])
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    told(ended="all done")


def _end(told: Told, scratch: Path) -> None:
    """Out of time: the end of each server's log says how far it was."""
    for log in sorted(scratch.rglob("vllm.log")):
        told(way=log.parent.name, log=log.read_text(errors="replace")[-3000:])
    told(ended="out of time")
    os._exit(1)


def _adapters(arguments: argparse.Namespace, folder: str, scratch: Path, told: Told) -> None:
    """A server with an adapter; it sleeps too."""
    policy = _policy(arguments, folder, lora_rank=RANK)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.01)
    with _server(arguments, policy, scratch / "adapters") as sampler:
        publisher, prompts = _fresh(arguments, policy, sampler, told, "vllm, adapter")
        _written(arguments, policy, sampler, prompts, told, "vllm, adapter")
        for name, act in {
            "sleep_s": sampler.release,
            "wake_s": lambda: sampler.sample(prompts[:1], temperature=1.0, max_new_tokens=1, seed=0),
        }.items():
            begun = time.monotonic()
            act()
            seconds = round(time.monotonic() - begun, 2)
            told(way="vllm, adapter", **{name: seconds}, gpu_used_gib=_used_gib())
        told(way="vllm, adapter", gap_after_sleep=publisher.publish().gap)


def _full(arguments: argparse.Namespace, folder: str, scratch: Path, told: Told) -> None:
    """A server that takes full weights."""
    policy = _policy(arguments, folder)
    with _server(arguments, policy, scratch / "full") as sampler:
        _, prompts = _fresh(arguments, policy, sampler, told, "vllm, full weights")
        if told.left(arguments.budget) < RATE_S:
            told(way="vllm, full weights", left_out="its rate, which takes longer than is left")
        else:
            _written(arguments, policy, sampler, prompts, told, "vllm, full weights")


@contextmanager
def _server(arguments: argparse.Namespace, policy: TorchPolicy, folder: Path) -> Iterator[Sampler]:
    """One on the trainer's GPU. Its log is kept beside the figures."""
    asked = TrainConfig.model_validate(
        {
            "policy": policy.config.model_dump(),
            "sampler": {"kind": "vllm", "python": arguments.python},
            "gym": {"device": "cpu"},
        }
    )
    config = placed(asked, torch.cuda.device_count() and 1)
    try:
        with closing(open_sampler(config, policy, Store(str(folder)))) as sampler:
            yield sampler
    finally:
        if arguments.out is not None:
            log = (folder / "vllm.log").read_bytes()
            arguments.out.with_suffix(f".{folder.name}.log").write_bytes(log)


def _fresh(
    arguments: argparse.Namespace, policy: TorchPolicy, sampler: Sampler, told: Told, name: str
) -> tuple[Publisher, list[list[dict[str, str]]]]:
    """The server's start, three publications of changed weights, and each one's first token."""
    begun = time.monotonic()
    prompts = _prompts(policy, arguments)
    policy.set_version("run@0")
    publisher = Publisher(sampler, policy, max_gap=10.0)
    first_gap = publisher.publish().gap
    told(way=name, start_s=round(time.monotonic() - begun, 1), first_gap=first_gap)
    sampler.sample(prompts[:2], temperature=1.0, max_new_tokens=8, seed=0)
    for number in (1, 2, 3):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.02)
        policy.set_version(f"run@{number}")
        begun = time.monotonic()
        sampler.publish(policy)
        published = time.monotonic()
        sampler.sample(prompts[:1], temperature=1.0, max_new_tokens=1, seed=0)
        first_s = time.monotonic() - begun
        told(way=name, publish_s=round(published - begun, 3), publish_to_first_token_s=round(first_s, 3))
    verified = publisher.publish()
    told(way=name, gap=verified.gap, moved=verified.moved)
    return publisher, prompts


def _written(
    arguments: argparse.Namespace,
    policy: TorchPolicy,
    sampler: Sampler,
    prompts: list[list[dict[str, str]]],
    told: Told,
    name: str,
) -> None:
    """The server's rate, and its distance from the trainer."""

    def write() -> Any:
        return sampler.sample(prompts, temperature=1.0, max_new_tokens=arguments.new, seed=1)

    samples = _timed(told, name, write)
    told(way=name, **_gaps(policy, samples[:4]))


def _static(arguments: argparse.Namespace, folder: str, scratch: Path, told: Told) -> None:
    """The static decoder; twice if there is time, because the first run records its graphs."""
    policy = _policy(arguments, folder, decoding="static")
    prompts = _prompts(policy, arguments)

    def write() -> Any:
        return policy.sample(prompts, temperature=1.0, max_new_tokens=arguments.new, seed=1)

    before = told.left(arguments.budget)
    _timed(told, "static, first", write)
    policy.release()
    left = told.left(arguments.budget)
    if left > before - left + WAYS["generate"][1]:
        _timed(told, "static", write)
        policy.release()


class _OutOfTime(StoppingCriteria):
    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        is_over = time.monotonic() > self._until
        return torch.full((len(input_ids),), is_over, device=input_ids.device)


def _generate(arguments: argparse.Namespace, folder: str, scratch: Path, told: Told) -> None:
    """`generate` of transformers with its default cache."""
    policy = _policy(arguments, folder)
    prompts = [policy.encode_messages(messages) for messages in _prompts(policy, arguments)]
    widest = max(map(len, prompts))
    ids = np.zeros((len(prompts), widest), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, widest - len(prompt) :], mask[row, widest - len(prompt) :] = prompt, 1
    left = told.left(arguments.budget) - 5
    begun = time.monotonic()
    with torch.no_grad():
        written = policy.model.generate(
            torch.from_numpy(ids).to(policy.device),
            attention_mask=torch.from_numpy(mask).to(policy.device),
            max_new_tokens=arguments.new,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            repetition_penalty=1.0,
            stopping_criteria=[_OutOfTime(min(left, 40.0))],
            pad_token_id=0,
        )
    new = written[:, widest:].cpu()
    _tell_rate(told, "generate", int((new != 0).sum()), time.monotonic() - begun, new.shape[1])


def _timed(told: Told, name: str, act: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    samples = act()
    lengths = [len(sample.token_ids) for sample in samples]
    _tell_rate(told, name, sum(lengths), time.monotonic() - begun, max(lengths))
    return samples


def _tell_rate(told: Told, name: str, tokens: int, seconds: float, longest: int) -> None:
    told(
        way=name,
        tokens=tokens,
        longest=longest,
        seconds=round(seconds, 2),
        tokens_per_s=round(tokens / seconds),
    )


def _gaps(policy: TorchPolicy, samples: Any) -> dict[str, float]:
    """How far the server's log-probabilities are from the trainer's, in nats a token."""
    trainer = InlineSampler(policy)
    gaps = np.concatenate(
        [np.abs(s.logprobs - trainer.logprobs(s.prompt_ids, s.token_ids, 1.0)) for s in samples]
    )
    return {"mean_gap": float(gaps.mean()), "largest_gap": float(gaps.max()), "compared": len(gaps)}


def _policy(arguments: argparse.Namespace, folder: str, **settings: Any) -> TorchPolicy:
    on_gpu = torch.cuda.is_available()
    config = PolicyConfig(
        model=folder,
        device="cuda" if on_gpu else "cpu",
        dtype="bfloat16" if on_gpu else "float32",
        max_context=max(1024, arguments.prompt + arguments.new + 64),  # the publisher's texts fit
        **settings,
    )
    return TorchPolicy.load(folder, config)


def _prompts(policy: TorchPolicy, arguments: argparse.Namespace) -> list[list[dict[str, str]]]:
    """Conversations of about `prompt` tokens, `group` times each."""

    def of(number: int) -> list[dict[str, str]]:
        text, line = "", 0
        while policy.count_tokens(text) < arguments.prompt - 40:
            text += "".join(f"x{number}_{line + i} = {number * (line + i)}\n" for i in range(4))
            line += 4
        return [{"role": "user", "content": text}]

    distinct = [of(number) for number in range(arguments.batch // arguments.group)]
    return [prompt for prompt in distinct for _ in range(arguments.group)]


def _random_model(folder: Path) -> str:
    """Random weights of Qwen2.5-Coder-0.5B's shape, and a tokenizer of bytes with as many entries."""
    shape = QWEN["0.5B"]
    small = not torch.cuda.is_available()
    vocabulary = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    size = 1024 if small else shape.vocabulary
    vocabulary |= {f"entry{i}": i for i in range(len(vocabulary), size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = f"entry{size - 1}"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end).save_pretrained(folder)
    torch.manual_seed(0)
    with torch.device("cpu" if small else "cuda"):
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=size,
                hidden_size=128 if small else shape.hidden,
                intermediate_size=128 if small else shape.intermediate,
                num_hidden_layers=2 if small else shape.layers,
                num_attention_heads=4 if small else shape.heads,
                num_key_value_heads=shape.kv_heads,
                max_position_embeddings=32_768,
                tie_word_embeddings=True,
                initializer_range=0.05,
                eos_token_id=size - 1,
            )
        )
    model.to(torch.float32 if small else torch.bfloat16).save_pretrained(folder)
    return str(folder)


def _used_gib() -> float:
    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / 2**30, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", help="a folder with weights and tokenizer")
    parser.add_argument("--python", help="the Python of an environment with vLLM")
    parser.add_argument("--budget", type=float, default=180.0, help="seconds")
    parser.add_argument("--out", type=Path, help="a file for the lines; the servers' logs are put beside it")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"some of {','.join(WAYS)}")
    arguments = parser.parse_args()
    sizes = {"batch": BATCH, "group": GROUP, "prompt": PROMPT, "new": NEW}
    vars(arguments).update(sizes if torch.cuda.is_available() else SMALL)
    return arguments


WAYS: dict[str, tuple[Callable[[argparse.Namespace, str, Path, Told], None], float]] = {
    "adapters": (_adapters, 60.0),
    "full": (_full, 60.0),
    "static": (_static, 40.0),
    "generate": (_generate, 15.0),
}
"""With the seconds that each takes at least on an H100, in guesses."""


if __name__ == "__main__":
    main()
