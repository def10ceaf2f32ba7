"""`dojo` from outside: exit codes, one line an error, and the contract of `dojo judge`.

Commands that reach a flow are in `tests/flows/test_stage_commands.py`: they need a Prefect server.
"""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.cli import app, run
from flows.deployments import load_deployments
from flows.presets import PREFECT_YAML
from kernel_core.runs.host_gpus import has_gpu
from kernel_core.runs.run_folder import Run

PROBLEM = """
import torch
import torch.nn as nn

N = 1048576

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""

PROMISED = {
    "verdict",
    "findings",
    "trials_passed",
    "trials",
    "speedup",
    "predicted_speedup",
    "runtime_ms",
    "reference_ms",
    "baseline",
    "baselines",
    "product_precision",
    "tolerances_passed",
    "own_kernel_share",
    "feedback",
    "seconds",
    "gym_version",
}


def dojo(*arguments, cwd, **environment):
    """Run `dojo`; its completed process."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), **environment},
        capture_output=True,
        text=True,
    )


def refused(exit_code, errors, wanted_code, words):
    """Assert one clear line on stderr, the exit code, and no traceback."""
    lines = [line for line in errors.splitlines() if line.startswith("dojo:")]
    assert exit_code == wanted_code, errors
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    for word in words:
        assert word in lines[0]


NOT_INSTALLED = """
from importlib import metadata

find = metadata.Distribution.from_name

def hidden(name):
    if name == "kernel-dojo":
        raise metadata.PackageNotFoundError(name)
    return find(name)

metadata.Distribution.from_name = hidden
"""
"""A `sitecustomize` by which a process and its children find the modules and no installed distribution."""


@pytest.fixture
def files(tmp_path):
    """A folder with a problem and a good kernel."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def test_help_is_immediate(tmp_path):
    """It imports one library, that of the command line; its seconds would depend on the machine."""
    result = dojo("--help", cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    assert result.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    packages = {name.partition(".")[0] for name in imported}
    assert packages >= {"cyclopts", "kernel_core"}
    assert not packages & {"torch", "triton", "prefect", "pydantic", "numpy", "pandas", "pyarrow", "tasks"}
    assert not {name for name in imported if name.startswith("flows.commands")}
    for command in ("pipeline", "train", "judge", "search", "runs", "deploy", "ui"):
        assert command in result.stdout


def test_an_honest_kernel_is_correct_and_the_last_line_is_json(files):
    """Also from a checkout that is not installed."""
    (files / "sitecustomize.py").write_text(NOT_INSTALLED)
    plain = {"PYTHONPATH": f"{files}{os.pathsep}{PREFECT_YAML.parent}"}
    arguments = ("--problem", "problem.py", "--kernel", "kernel.py", "--set", "N=1000", "--json")
    result = dojo("judge", *arguments, cwd=files, **plain)
    assert result.returncode == 0, result.stderr
    verdict = json.loads(result.stdout.splitlines()[-1])
    assert verdict.keys() >= PROMISED
    assert verdict["verdict"] == "correct"
    assert verdict["trials_passed"] == verdict["trials"] > 0
    assert verdict["speedup"] is None and verdict["predicted_speedup"] > 0
    assert verdict["sizes"] == {"N": 1000}


BAD_KERNELS = {
    "wrong": KERNEL.replace("tl.maximum(x, 0.0)", "x"),
    "not python": "def (:",
    "empty": "",
    "no class": "x = 1",
    "binary": b"\x00\xff\xfe not text \x80".decode("latin-1"),
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """What `dojo` printed of a batch of bad kernels and a good one, and the rows of its table by id."""
    folder = tmp_path_factory.mktemp("batch")
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "binary.py").write_bytes(b"\x00\xff\xfe\x80")
    (folder / "marked_problem.py").write_text(PROBLEM, encoding="utf-8-sig")
    (folder / "marked_kernel.py").write_text(KERNEL, encoding="utf-8-sig")
    rows = [
        {"id": name, "problem": "problem.py", "kernel_source": kernel} for name, kernel in BAD_KERNELS.items()
    ]
    rows.append({"id": "file", "problem": "problem.py", "kernel": "binary.py"})
    rows.append({"id": "marked", "problem": "marked_problem.py", "kernel": "marked_kernel.py"})
    lines = [json.dumps(row | {"set": {"N": 1000}}) for row in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8-sig")
    result = dojo("judge", "--batch", "rows.jsonl", "--out", "out/judged.parquet", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    table = pq.read_table(folder / "out" / "judged.parquet").to_pylist()
    return result, {row["id"]: row for row in table}


@pytest.mark.exhaustive
def test_bad_kernels_are_verdicts_and_not_errors(batch):
    result, rows = batch
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "judged": 7,
        "verdicts": {"malformed": 5, "wrong": 1, "correct": 1},
        "not_judged": [],
        "out": "out/judged.parquet",
    }
    assert list(rows) == [*BAD_KERNELS, "file", "marked"]
    assert rows["wrong"]["verdict"] == "wrong"
    malformed = ("not python", "empty", "no class", "binary", "file")
    assert {rows[name]["verdict"] for name in malformed} == {"malformed"}
    assert rows["wrong"].keys() >= PROMISED
    assert json.loads(rows["wrong"]["sizes"]) == {"N": 1000}


@pytest.mark.exhaustive
def test_a_byte_order_mark_is_no_mistake(batch):
    _, rows = batch
    assert rows["marked"]["verdict"] == "correct"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("size", "words"),
    [("0", ["empty", "larger"]), ("99999999999999999999999", ["get_inputs", "verflow"])],
)
def test_sizes_that_nothing_can_run_at_are_one_line(files, size, words, monkeypatch, capsys):
    monkeypatch.chdir(files)
    code = run(["judge", "--problem", "problem.py", "--kernel", "kernel.py", "--set", f"N={size}"])
    errors = capsys.readouterr().err
    refused(code, errors, 2, words)
    assert len(errors) < 300, errors


@pytest.mark.slow
def test_a_row_that_cannot_be_judged_leaves_the_others_in_their_places(files):
    (files / "broken.py").write_text(PROBLEM.replace("torch.randn(N)", "torch.randn(missing)"))
    rows = [
        {"id": name, "problem": problem, "kernel": "kernel.py", "set": {"N": 1000}}
        for name, problem in (("broken", "broken.py"), ("good", "problem.py"))
    ]
    (files / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = dojo("judge", "--batch", "rows.jsonl", "--out", "judged.parquet", cwd=files)
    assert result.returncode == 2, result.stderr
    assert "not judged: broken" in result.stdout and "Traceback" not in result.stderr
    broken, good = pq.read_table(files / "judged.parquet").to_pylist()
    assert good["id"] == "good" and good["verdict"] == "correct" and good["error"] is None
    assert broken["id"] == "broken" and broken["verdict"] is None and "missing" in broken["error"]


@pytest.mark.exhaustive
def test_a_batch_by_kernelbenchs_rules_has_its_result_in_each_row(files):
    row = {"problem": "problem.py", "kernel": "kernel.py", "set": {"N": 1000}}
    (files / "rows.jsonl").write_text(json.dumps(row))
    words = ("judge", "--batch", "rows.jsonl", "--out", "judged.parquet", "--rules", "kernelbench")
    result = dojo(*words, cwd=files)
    assert result.returncode == 0, result.stderr
    [judged] = pq.read_table(files / "judged.parquet").to_pylist()
    assert json.loads(judged["kernelbench"])["correctness"] is True
    assert (judged["verdict"], judged["trials"]) == ("correct", 5)


def test_an_audit_names_what_a_problem_accepts(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    text = (files / "problem.py").read_text().replace("torch.relu(", "0 * torch.relu(")
    (files / "idle.py").write_text(text)
    settings = ["--set", "N=1000", "--out", "audit.parquet"]
    assert run(["audit", "idle.py", *settings]) == 0
    assert "1 problems: 1 accept something" in capsys.readouterr().out
    rows = pq.read_table(files / "audit.parquet").to_pylist()
    assert all("zeros" in row["accepted"] for row in rows if row["usable"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--problem", "none.py", "--kernel", "kernel.py"), ["none.py"]),
        (("--problem", "problem.py", "--kernel", "none.py"), ["none.py"]),
        (("--problem", "kernel.py", "--kernel", "kernel.py"), ["kernel", "Model"]),
        (("--problem", "problem.py", "--kernel", "kernel.py", "--set", "M=4"), ["M", "N"]),
        (("--problem", "problem.py", "--kernel", "kernel.py", "--set", "N"), ["NAME=VALUE"]),
        (("--problem", "/proc/self/mem", "--kernel", "kernel.py"), ["cannot read", "/proc/self/mem"]),
        (("--problem", "problem.py", "--kernel", "/proc/self/mem"), ["cannot read", "/proc/self/mem"]),
        (("--problem", "problem.py"), ["--kernel"]),
        (("--batch", "none.jsonl", "--out", "o.parquet"), ["none.jsonl"]),
        (("--batch", "problem.py", "--out", "o.parquet"), ["line 1", "JSON"]),
        (("--batch", "problem.py"), ["--out"]),
        (("--batch", "r.jsonl", "--out", "o.parquet", "--set", "N=4", "--seed", "0"), ["--set, --seed"]),
        (("--batch", "r.jsonl", "--out", "o.parquet", "--precision", "own"), ["--precision"]),
        (("--batch", "r.jsonl", "--problem", "problem.py", "--kernel", "k.py"), ["--problem, --kernel"]),
        (("--problem", "problem.py", "--kernel", "kernel.py", "--out", "o.json"), ["--out", "--batch"]),
    ],
)
def test_the_callers_mistakes_are_exit_code_2(files, arguments, words, monkeypatch, capsys):
    monkeypatch.chdir(files)
    refused(run(["judge", *arguments]), capsys.readouterr().err, 2, words)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("train", "nothing-like-it"), 2, ["preset"]),
        (("train", "lern"), 2, ["did you mean learn"]),
        (("train", "learn", "smoke"), 2, ["one preset"]),
        (("pipeline", "train.group_sise=4"), 2, ["did you mean train.group_size"]),
        (("pipeline", "--config", "none.yaml"), 2, ["none.yaml"]),
        (("pipeline", "--config", "broken.yaml"), 2, ["broken.yaml", "line"]),
        (("evaluate", "samples_per_problem=none"), 2, ["samples_per_problem"]),
        (("search", "words", "--run", "nobody"), 2, ["no run 'nobody'"]),
        (("runs", "show", "nobody"), 2, ["no run 'nobody'"]),
        (("runs", "resume", "nobody"), 2, ["no run 'nobody'"]),
        (("deploy", "--dry-run", "--file", "none.yaml"), 2, ["none.yaml"]),
        (("deploy", "--dry-run", "--file", "broken.yaml"), 2, ["broken.yaml"]),
    ],
)
def test_mistakes_that_need_no_flow_are_one_line(tmp_path, arguments, exit_code, words, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("train: {steps: [1\n")
    refused(run(arguments), capsys.readouterr().err, exit_code, words)


@pytest.mark.exhaustive
def test_a_mistake_seen_from_outside(tmp_path):
    result = dojo("train", "lern", cwd=tmp_path)
    refused(result.returncode, result.stderr, 2, ["did you mean learn"])


MENTIONED = {
    "dojo search",
    "dojo harvest",
    "dojo runs resume",
    "dojo judge --batch",
    "dojo judge --precision",
}
"""Parts of a command that pages name."""


def commands_of_the_pages():
    """Every whole `dojo` command of the pages, by its text."""
    root = PREFECT_YAML.parent
    pages = [root / "README.md", root / "deploy" / "README.md", *sorted((root / "docs").rglob("*.md"))]
    found = set()
    for page in pages:
        for inline, block in re.findall(
            r"`(dojo [^`\n]+)`|^ +(dojo [^\n]+)$", page.read_text(), re.MULTILINE
        ):
            text = re.split(r" {3}| #| \\", inline or block)[0].strip()
            if not re.search(r"…|\[|STAGE|COMMAND", text):
                found.add(text)
    return found - MENTIONED


def test_the_commands_of_the_pages_are_taken():
    commands = commands_of_the_pages()
    assert len(commands) > 50
    for command in commands:
        words = shlex.split(command)[1:]
        app().parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "--steps", "3", "--dry-run"], "settings are written steps=3"),
        (["train", "--root=elsewhere"], "settings are written root=elsewhere"),
        (["runs", "list", "root=elsewhere"], "options are written --root elsewhere"),
        (["judge", "problem=p.py"], "options are written --problem p.py"),
        (["evaluate", "run=", "--dry-run"], "write run=NAME or leave it out"),
        (["evaluate", "samples_per_problem=99999999999", "--dry-run"], "less than or equal to 4096"),
    ],
)
def test_a_slip_of_the_command_line_is_answered_with_what_to_write(words, hint, capsys):
    assert run(words) == 2
    refused(2, capsys.readouterr().err, 2, [hint])


@pytest.mark.skipif(has_gpu(), reason="this host has a GPU")
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["judge", "--problem", "p.py", "--kernel", "k.py", "--device", "cuda"], "--device cuda"),
        (["serve", "gym.device=cuda"], "gym.device = cuda"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused_in_plain_words(words, option, capsys):
    assert run(words) == 2
    refused(2, capsys.readouterr().err, 2, [f"{option}, but this host has no GPU"])


def test_a_verdict_for_a_person_names_the_problems_own_sizes_and_says_first_what_it_does(files, capsys):
    (files / "kernel.py").write_text("def f(:")
    words = ["judge", "--problem", str(files / "problem.py"), "--kernel", str(files / "kernel.py")]
    assert run([*words, "--set", "N=100"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("judging a kernel for file/problem on cpu")
    assert "N 100 (own: 1048576)" in shown.out and "{" not in shown.out


def test_an_empty_root_has_no_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["runs", "list"]) == 0
    assert "no runs" in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"run": ', '{"run": "broken"}', "[]"])
def test_a_broken_state_hides_no_other_run(tmp_path, text, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Run("runs", "good").owned("train", {}):
        pass
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "state.json").write_text(text)
    assert run(["runs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [good], [broken] = ([line for line in lines if f" {name} " in line] for name in ("good", "broken"))
    assert "finished" in good and "unread" in broken
    assert lines.index(good) < lines.index(broken)


def test_the_name_of_a_run_is_whole_on_a_narrow_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    name = "held-out-without-retrieval-0002"
    with Run("runs", name).owned("evaluate", {}):
        pass
    assert run(["runs", "list"]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("command", [("ui",), ("deploy", "--local")])
def test_a_port_that_is_taken_is_said_at_once(tmp_path, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = dojo(*command, "--port", port, cwd=tmp_path, PREFECT_HOME=str(tmp_path / "prefect"))
    refused(result.returncode, result.stderr, 2, [str(port), "--port"])
    assert result.stdout == ""


def test_the_deployments_of_this_repository_are_valid(capsys):
    deployments = load_deployments(PREFECT_YAML, os.environ | {"PWD": str(PREFECT_YAML.parent)})
    names = [deployment.name for deployment in deployments]
    assert "pipeline/quickstart" in names
    assert run(["deploy", "--dry-run"]) == 0
    assert f"{PREFECT_YAML}: {len(names)} deployments, all valid\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("judge", "--batch", "rows.jsonl", "--out", "folder"), 2, ["--out", "folder"]),
        (("judge", "--batch", "rows.jsonl", "--out", "rows.jsonl"), 2, ["overwrite", "rows.jsonl"]),
        (("judge", "--batch", "rows.jsonl", "--out", "/proc/x.parquet"), 3, ["/proc/x.parquet"]),
        (("audit", "problem.py", "--out", "folder"), 2, ["--out", "folder"]),
        (("audit", "problem.py", "--limit", "0"), 2, ["--limit", ">= 1"]),
        (("runs", "watch", "mine", "--every", "-1"), 2, ["--every"]),
        (("runs", "logs", "mine", "-n", "-1"), 2, ["-n", ">= 1"]),
        (("search", "words", "--run", "mine", "-k", "0"), 2, ["-k", ">= 1"]),
        (("ui", "--port", "99999"), 2, ["--port", "65535"]),
        (("deploy", "--local", "--port", "0"), 2, ["--port", ">= 1"]),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(files, arguments, exit_code, words, monkeypatch, capsys):
    monkeypatch.chdir(files)
    row = json.dumps({"problem": "problem.py", "kernel": "kernel.py", "set": {"N": 1000}})
    (files / "rows.jsonl").write_text(row)
    (files / "folder").mkdir()
    code = run(arguments)
    shown = capsys.readouterr()
    refused(code, shown.err, exit_code, words)
    assert (files / "rows.jsonl").read_text() == row
    assert (files / "problem.py").read_text() == PROBLEM
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (IsADirectoryError(21, "Is a directory", "x"), "Is a directory: x"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (ConnectionError("the other side is gone"), "the other side is gone"),
    ],
)
def test_a_fault_of_the_systems_is_one_line(error, words, monkeypatch, capsys):
    def fail(root):
        raise error

    monkeypatch.setattr("flows.commands.runs.list_runs", fail)
    assert run(["runs", "list"]) == 3
    assert capsys.readouterr().err == f"dojo: {words}\n"


def test_ctrl_c_promises_to_go_on_only_where_the_command_does(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.commands.audit.sizes_of", interrupted)
    monkeypatch.setattr("flows.commands.stages.run_stage", interrupted)
    assert run(["audit"]) == 130
    assert capsys.readouterr().err == "dojo: stopped\n"
    assert run(["train"]) == 130
    assert "the same command goes on" in capsys.readouterr().err


INTERRUPTED = """
import flows.cli

def interrupted(*words, **settings):
    exec("raise KeyboardInterrupt")

flows.cli.app = lambda: interrupted
flows.cli.main(["ingest"])
"""


def test_an_interrupt_in_text_that_python_executes_has_the_exit_code_of_any_other(tmp_path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "interrupted"]
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[1])))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("dojo: stopped")) == (130, True), done.stderr
