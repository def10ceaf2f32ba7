"""Claim: `vf-eval` of verifiers runs our environment against an OpenAI-compatible server.

Serves the small policy of `data/policy/` as chat completions, and lets `vf-eval kernel-dojo` talk to it: our
problems, prompts, feedback and rewards. verifiers is an extra: install `kernel-dojo[verifiers]` first. With
`--vllm` the server is vLLM, as `sampler.kind: vllm` starts it; without, one of the tests.

    python benchmarks/verifiers_evaluation.py --problems 4 --turns 2 [--vllm PYTHON] --write
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fixtures"))

from chat_server import chat_server  # noqa: E402
from machine import describe_machine  # noqa: E402

from kernel_core.config import PolicyConfig, SamplerConfig, TrainConfig  # noqa: E402
from kernel_core.policy import SHIPPED, open_policy  # noqa: E402
from kernel_core.policy.base import base_in  # noqa: E402
from kernel_core.policy.vllm_process import VllmProcess  # noqa: E402

SETTINGS = {"problems": {"families": ["elementwise_chain", "row_reduce"]}, "rollout": {"template": "compact"}}
PLUGIN = ROOT / "kernel_core" / "interop" / "verifiers_plugin.py"
PAGE = ROOT / "docs" / "results" / "verifiers.md"
TITLE, ON_VLLM = "# Our environment in verifiers\n\n", "\n## On a vLLM server\n\n"
MOST_TOKENS = 400
"""Of an answer."""


def main() -> int:
    """Evaluate, and print what each trace says."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder, _server(arguments.vllm, folder) as (url, model, versions):
        environment = os.environ | {"DOJO_NO_KEY": "none", "PYTHONPATH": _path(folder)}
        command = [
            *(sys.executable, "-c", "from verifiers.v1.cli.eval.main import main; main()", "kernel-dojo"),
            *("--env.taskset.limit", str(arguments.problems), "--env.taskset.turns", str(arguments.turns)),
            *("--env.taskset.rewards", "dojo/correct"),
            *("--env.taskset.settings", json.dumps(SETTINGS)),
            *("--client.base-url", url, "--client.api-key-var", "DOJO_NO_KEY", "--model", model),
            *("--sampling.max-tokens", str(MOST_TOKENS)),
            *("--num-rollouts", str(arguments.rollouts), "--output-dir", folder, "--rich", "None"),
            *("--push", "False", "--max-concurrent", "2"),
        ]
        status = subprocess.run(command, env=environment, cwd=ROOT).returncode
        episodes = [json.loads(line) for file in Path(folder).rglob("traces.jsonl") for line in file.open()]
    rows = [
        f"| {episode['task']['data']['id']} | {trace['rewards']['kernel']['score']:.4g} "
        f"| {', '.join(f'{name} {value:.4g}' for name, value in trace['metrics'].items())} |"
        for episode in episodes
        for trace in episode["traces"]
        if "kernel" in trace["rewards"]
    ]
    faults = [fault for one in episodes for trace in one["traces"] for fault in trace["errors"]]
    table = ["| task | reward | metrics |", "|---|---|---|", *rows]
    said = f"`vf-eval` left with exit code {status}: {len(episodes)} episodes, {len(faults)} errors."
    command = f"    python benchmarks/verifiers_evaluation.py {' '.join(sys.argv[1:])}"
    verifiers = importlib.metadata.version("verifiers")
    machine = f"Machine: {describe_machine()}, verifiers {verifiers}{versions}."
    text = "\n".join([command, "", machine, "", said, "", *table]) + "\n"
    print(text, *faults, sep="\n")
    if arguments.write:
        own, mark, on_vllm = PAGE.read_text().partition(ON_VLLM)
        PAGE.write_text(own + ON_VLLM + text if arguments.vllm else TITLE + text + mark + on_vllm)
    return status or len(faults)


@contextlib.contextmanager
def _server(vllm_python: str | None, folder: str) -> Iterator[tuple[str, str, str]]:
    """The base URL, the model's name there, and further versions."""
    if vllm_python is None:
        with chat_server(open_policy(PolicyConfig())) as url:
            yield url, "policy", ""
        return
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    config = TrainConfig(sampler=SamplerConfig(kind="vllm", python=vllm_python))
    with contextlib.closing(VllmProcess(config, base_in(str(SHIPPED)), Path(folder) / "vllm.log")) as server:
        url = server.endpoint()
        version = httpx.get(f"{url}/version").json()["version"]
        yield f"{url}/v1", server.model, f"; vLLM {version} in an environment of its own"


def _path(folder: str) -> str:
    """Where Python finds us, and the plugin where the package is not installed."""
    if importlib.util.find_spec("kernel_dojo") is None:
        shutil.copy(PLUGIN, Path(folder) / "kernel_dojo.py")
    return os.pathsep.join([str(ROOT), folder, os.environ.get("PYTHONPATH", "")])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=1, help="conversations a problem")
    parser.add_argument("--vllm", metavar="PYTHON", help="the Python of an environment with vLLM")
    parser.add_argument("--write", action="store_true", help="write our section of docs/results/verifiers.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
