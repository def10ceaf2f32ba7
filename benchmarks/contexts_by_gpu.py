"""How many processes a second can bring up a GPU's context and go again, on one GPU of a host and on all.

    python benchmarks/contexts_by_gpu.py [--seconds 4]

As a judge's processes do: forked from one that imported torch and can open one GPU, and killed once they are
up; some at a time on each GPU. `all` may open every GPU of the host, as processes do by default; only root
can keep others from a process. `context` is the least that uses a GPU, `warm` what a judge's processes do.
`8 and 8` are the queues for kernels and for copies that CUDA makes by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from machine import describe_machine

from kernel_core.gym.processes.cuda_workers import QUEUES, bring_up
from kernel_core.gym.timing.nvml import keep_to_gpu


def main() -> int:
    """Print the table; with --gpu, be the one that starts processes for that GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row")
    parser.add_argument("--gpu", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--queues", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gpu is not None:
        _serve(arguments.gpu, arguments.all, arguments.queues, arguments.seconds)
        return 0
    print(f"Machine: {describe_machine()}.\n")
    print("| may open | queues | does | GPUs | at once on each | lives a second | s to come up | to go |")
    print("|---|---|---|---|---|---|---|---|")
    count = torch.cuda.device_count()
    numbers = ((1, 1), (1, 4), (1, 8), *(((count, 1), (count, 4)) if count > 1 else ()))
    few = list(QUEUES.values())
    for may_open, queues, work in (
        ("one", few, "context"),
        ("one", few, "warm"),
        ("one", ["8", "8"], "warm"),
        ("all", few, "warm"),
    ):
        servers = [_server(gpu, may_open == "all", queues, arguments.seconds) for gpu in range(count)]
        for gpus, each in numbers:
            lives = _ask(servers[:gpus], work, each)
            ups, goings = zip(*lives, strict=True)
            print(
                f"| {may_open} | {' and '.join(queues)} | {work} | {gpus} | {each} "
                f"| {len(lives) / arguments.seconds:.1f} "
                f"| {statistics.median(ups):.2f} | {statistics.median(goings):.2f} |",
                flush=True,
            )
        for server in servers:
            server.communicate()
    return 0


def _server(gpu: int, can_open_all: bool, queues: list[str], seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, f"--seconds={seconds}", f"--gpu={gpu}", "--queues", *queues]
    command += ["--all"] * can_open_all
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(servers: list[subprocess.Popen[str]], work: str, each: int) -> list[tuple[float, float]]:
    """Of every life, how long it took to come up and to go."""
    # Whoever answers has imported what it needs.
    for question in ("ready", f"{work} {each}"):
        for server in servers:
            assert server.stdin is not None
            server.stdin.write(question + "\n")
            server.stdin.flush()
        answers = [server.stdout.readline() for server in servers if server.stdout is not None]
    words = " ".join(answers).split()
    return [(float(up), float(gone)) for up, _, gone in (word.partition("/") for word in words)]


def _serve(gpu: int, can_open_all: bool, queues: list[str], seconds: float) -> None:
    """Answer with `up/gone` of each life, in seconds. This process itself never uses the GPU."""
    QUEUES.update(zip(QUEUES, queues, strict=True))
    os.environ.update(QUEUES)
    if can_open_all:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    else:
        keep_to_gpu(gpu)
    for question in sys.stdin:
        work, _, each = question.partition(" ")
        print("" if work == "ready\n" else " ".join(_lives(work, int(each), seconds)), flush=True)


def _lives(work: str, each: int, seconds: float) -> list[str]:
    act = bring_up if work == "warm" else _touch
    until, readers = time.monotonic() + seconds, []
    for _ in range(each):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, " ".join(_live_on(act, until)).encode())
            os._exit(0)
        os.close(writer)
        readers.append(os.fdopen(reader))
    words = []
    for reader in readers:
        with reader:
            words += reader.read().split()
        os.wait()
    return words


def _live_on(act: Callable[[], None], until: float) -> list[str]:
    """One life after the other."""
    found = []
    while time.monotonic() < until:
        reader, writer = os.pipe()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            act()
            os.write(writer, b"up")
            signal.pause()
        os.close(writer)
        os.read(reader, 2)
        up = time.monotonic()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        found.append(f"{up - started:.3f}/{time.monotonic() - up:.3f}")
    return found


def _touch() -> None:
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
