"""Whatever stands in a batch file: requests in order, or one clear mistake of the caller's."""

import json
import re

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli import run
from kernel_core.errors import CallerError, ConfigError
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.oracle.memory import require_memory
from kernel_core.interop.batch import read_batch, request_of
from kernel_core.problems.load import load_file

PROBLEM = (
    "import torch\nimport torch.nn as nn\nN = 4\n"
    "class Model(nn.Module):\n    def forward(self, x):\n        return x + N\n"
    "def get_inputs():\n    return [torch.rand(N)]\n"
    "def get_init_inputs():\n    return []\n"
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=4), scalars, max_size=2)
keys = st.sampled_from(["problem", "kernel", "problem_source", "kernel_source", "set", "seed", "id", "odd"])
rows = st.dictionaries(keys, values | st.just(PROBLEM) | st.just({"N": 3}), max_size=5)
lines = rows.map(json.dumps) | st.text(max_size=20) | scalars.map(json.dumps)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("batch")


@given(st.lists(lines, max_size=3).map("\n".join), st.binary(max_size=4))
def test_a_batch_file_is_read_or_refused_in_one_line(folder, text, noise):
    file = folder / "rows.jsonl"
    file.write_bytes(text.encode("utf-8", errors="surrogatepass") + noise)
    try:
        ids, requests = read_batch(file)
    except CallerError as error:
        assert str(error)
    else:
        assert len(ids) == len(requests) > 0


def test_rows_are_read_in_order(folder):
    file = folder / "good.jsonl"
    row = {"problem_source": PROBLEM, "kernel_source": "x = 1", "set": {"N": 7}, "seed": 3}
    file.write_text("\n".join(json.dumps(row | {"id": number}) for number in range(3)))
    ids, requests = read_batch(file)
    assert ids == ["0", "1", "2"]
    assert {(request.sizes["N"], request.seed) for request in requests} == {(7, 3)}


def test_a_gpu_takes_the_problems_own_sizes_beside_those_that_are_set(folder):
    file = folder / "sizes.jsonl"
    source = "# cpu: N=3, M=2\n" + PROBLEM.replace("N = 4\n", "N = 4\nM = 5\nK = 6\n")
    row = {"problem_source": source, "kernel_source": "x = 1"}
    file.write_text(json.dumps(row | {"set": {"K": 7}}) + "\n" + json.dumps(row))
    for device, first, second in (
        ("cpu", {"N": 3, "M": 2, "K": 7}, {"N": 3, "M": 2}),
        ("cuda", {"K": 7}, {}),
    ):
        _, requests = read_batch(file, device)
        assert [request.run_sizes(device) for request in requests] == [first, second]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"problem_source": PROBLEM, "kernel_source": 5}, "kernel_source"),
        ({"problem_source": PROBLEM, "kernel": ["a"]}, "kernel"),
        ({"problem_source": PROBLEM, "kernel_source": "", "set": [1]}, "set"),
        ({"problem_source": PROBLEM, "kernel_source": "", "set": {"N": [1]}}, "set"),
        ({"problem_source": PROBLEM, "kernel_source": "", "set": {"M": 1}}, "M"),
        ({"problem_source": PROBLEM, "kernel_source": "", "seed": "x"}, "seed"),
        ({"problem_source": PROBLEM, "kernel_source": "", "seeds": 1}, "seeds"),
        ({"kernel_source": ""}, "problem"),
        ({"problem_source": PROBLEM}, "kernel"),
    ],
)
def test_a_bad_row_names_its_line_and_key(folder, row, words):
    file = folder / "bad.jsonl"
    file.write_text(json.dumps({"problem_source": PROBLEM, "kernel_source": ""}) + "\n" + json.dumps(row))
    _, (good, bad) = read_batch(file)
    assert isinstance(good, JudgeRequest) and isinstance(bad, CallerError)
    assert re.search(f"line 2.*{words}", str(bad))


def test_text_that_is_not_python_has_its_verdict_before_any_judge_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kernel_core.gym.pool.open_gym.open_gym", None)
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text("x = 1\ndef broken(:\n")
    words = ["--problem", str(tmp_path / "problem.py"), "--kernel", str(tmp_path / "kernel.py"), "--json"]
    assert run(["judge", *words]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["verdict"] == "malformed" and "line 2" in report["feedback"]


def test_a_bad_row_does_not_keep_the_others_from_their_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kernel_core.gym.pool.open_gym.open_gym", None)
    rows = [
        {"problem_source": PROBLEM, "kernel_source": "def (", "id": "a"},
        {"kernel_source": "x", "id": "b"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "not JSON\n")
    out = tmp_path / "out.parquet"
    assert run(["judge", "--batch", str(tmp_path / "rows.jsonl"), "--out", str(out)]) == 2
    table = pq.read_table(out).to_pylist()
    assert [(row["id"], row["verdict"]) for row in table] == [("a", "malformed"), ("b", None), ("3", None)]
    assert "line 2" in table[1]["error"] and "not JSON" in table[2]["error"]
    assert "not judged: b:" in capsys.readouterr().out


def asked_at(folder, n):
    """The request to judge the problem at a size."""
    (folder / "problem.py").write_text(PROBLEM)
    return request_of(load_file(folder / "problem.py"), "x = 1", {"N": n}, None, "cpu")


def test_memory_that_the_machine_lacks_is_missed_before_anything_is_drawn(tmp_path):
    with pytest.raises(ConfigError, match=r"N=68719476736: tensors of 549\.8 GB, at least 1649.*--set"):
        require_memory(asked_at(tmp_path, 2**36), "cpu")


def test_numbers_of_a_tuple_count_as_sizes_and_can_be_set(tmp_path):
    (tmp_path / "problem.py").write_text(
        PROBLEM.replace("N = 4", "N = 262144\nshape = (32768, 3)").replace("rand(N)", "rand(*shape, N)")
    )
    problem = load_file(tmp_path / "problem.py")
    with pytest.raises(ConfigError, match=r"shape\[0\]=32768, shape\[1\]=3: tensors of"):
        require_memory(request_of(problem, "x = 1", {"N": 262144}, None, "cpu"), "cpu")
    assert require_memory(request_of(problem, "x = 1", {"shape[0]": 2, "N": 5}, None, "cpu"), "cpu") is None


@pytest.mark.parametrize(("n", "is_told"), [(1024, False), (2**27, True)])
def test_a_large_problem_is_told_and_a_small_one_is_not(tmp_path, monkeypatch, n, is_told):
    monkeypatch.setattr("kernel_core.gym.oracle.memory._available_bytes", lambda: 64e9)
    told = require_memory(asked_at(tmp_path, n), "cpu")
    assert ("tensors of 1.1 GB, at least 3.2 GB to judge" in (told or "")) == is_told
