"""Claim: `vf-eval` of verifiers runs our environment against an OpenAI-compatible server.

Serves the small policy of `data/policy/` as chat completions, and lets `vf-eval kernel-dojo` talk to it: our
problems, prompts, feedback and rewards. verifiers is an extra: install `kernel-dojo[verifiers]` first.

    python benchmarks/verifiers_evaluation.py --problems 4 --turns 2 --write
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fixtures"))

from chat_server import chat_server  # noqa: E402
from machine import describe_machine  # noqa: E402

from kernel_core.config import PolicyConfig  # noqa: E402
from kernel_core.policy import open_policy  # noqa: E402

SETTINGS = {"problems": {"families": ["elementwise_chain", "row_reduce"]}, "rollout": {"template": "compact"}}
PLUGIN = ROOT / "kernel_core" / "interop" / "verifiers_plugin.py"


def main() -> int:
    """Evaluate, and print what each trace says."""
    arguments = _arguments()
    policy = open_policy(PolicyConfig())
    with tempfile.TemporaryDirectory() as folder, chat_server(policy) as url:
        environment = os.environ | {"DOJO_NO_KEY": "none", "PYTHONPATH": _path(folder)}
        command = [
            *(sys.executable, "-c", "from verifiers.v1.cli.eval.main import main; main()", "kernel-dojo"),
            *("--env.taskset.limit", str(arguments.problems), "--env.taskset.turns", str(arguments.turns)),
            *("--env.taskset.rewards", "dojo/correct"),
            *("--env.taskset.settings", json.dumps(SETTINGS)),
            *("--client.base-url", url, "--client.api-key-var", "DOJO_NO_KEY", "--model", "policy"),
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
    print("\n".join([said, *table, *map(str, faults)]))
    if arguments.write:
        command = f"    python benchmarks/verifiers_evaluation.py {' '.join(sys.argv[1:])}"
        machine = f"Machine: {describe_machine()}, verifiers {importlib.metadata.version('verifiers')}."
        text = ["# Our environment in verifiers", "", command, "", machine, "", said, "", *table]
        (ROOT / "docs" / "results" / "verifiers.md").write_text("\n".join(text) + "\n")
    return status or len(faults)


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
    parser.add_argument("--write", action="store_true", help="write docs/results/verifiers.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
