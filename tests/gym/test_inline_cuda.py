"""CUDA C++: what is built, what is recorded of a launch, and what a replay puts in its place."""

from __future__ import annotations

import importlib
import re
import socket
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from exploit_files import text_of
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import line_in
from kernel_core.gym.channel.cuda_params import find_addresses, put_addresses
from kernel_core.gym.channel.failures import NvccError
from kernel_core.gym.channel.messages import BuildFailed, Loaded, Sources
from kernel_core.gym.judge.extension_check import Builder, Extension
from kernel_core.gym.processes.judge_main import _start_fork_server
from kernel_core.gym.sandbox.cuda_toolkit import toolkit
from kernel_core.gym.sandbox.fork_server import ForkServer, ForkServerLost
from kernel_core.gym.untrusted.candidate.inline_cuda import Extensions
from kernel_core.gym.untrusted.candidate.trace_recorder import Recorder
from kernel_core.gym.untrusted.compile.nvcc_job import build
from kernel_core.gym.workers.child import open_caged_child
from kernel_core.store import Store

KERNEL = {"name": "add", "line": 3, "globals": {}, "extension": "one", "symbol": "_Z3addPfS_i"}
BLOCK = {"block_x": 128, "block_y": 1, "block_z": 1, "shared": 0}


@given(st.binary(max_size=64), st.lists(st.tuples(st.integers(1, 2**47), st.integers(1, 2**20)), max_size=4))
def test_addresses_come_back_where_they_were(parameters: bytes, spans: list[tuple[int, int]]) -> None:
    found = find_addresses(parameters, spans)
    as_before = {place: spans[number][0] + offset for place, (number, offset) in found.items()}
    assert put_addresses(parameters, as_before) == parameters


@given(st.lists(st.integers(0, 7), max_size=6), st.integers(0, 7))
def test_every_address_in_known_memory_is_found(numbers: list[int], tail: int) -> None:
    spans = [(4096 * (number + 1), 512) for number in range(8)]
    parameters = b"".join((spans[number][0] + 16).to_bytes(8, "little") for number in numbers) + b"x" * tail
    assert find_addresses(parameters, spans) == {
        8 * index: (number, 16) for index, number in enumerate(numbers)
    }


def test_a_place_outside_the_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="byte 4 of 8 bytes"):
        put_addresses(bytes(8), {4: 1})


def test_a_launch_is_recorded_with_the_memory_that_it_is_given() -> None:
    launches: list[dict[str, Any]] = []
    recorder = Recorder(launches.append)
    given_, weights = torch.ones(8), torch.ones(4)
    recorder.begin([given_])
    with recorder:
        recorder.meet([given_, weights])
        out = torch.empty(8)
        addresses = (given_.data_ptr(), weights.data_ptr() + 4, out.data_ptr(), 8)
        recorder.launch_native(KERNEL, [2, 1, 1], BLOCK, b"".join(a.to_bytes(8, "little") for a in addresses))
    [launch] = launches
    assert launch["grid"] == [2, 1, 1] and launch["options"] == BLOCK
    views = [launch["args"][place]["t"] for place in ("0", "8", "16")]
    assert [view[2:4] for view in views] == [[0, [32]], [4, [12]], [0, [32]]]
    assert "24" not in launch["args"]
    assert [number for number, _ in recorder.constants] == [views[1][0]], "what came from outside is kept"
    assert recorder.kernels.described == [KERNEL]


def test_an_error_is_told_at_the_candidates_own_line() -> None:
    source = 'import torch\n\nCUDA = r"""\nint a;\nint b\n"""\n'
    assert line_in(source, "\nint a;\nint b\n", 3) == 5
    assert line_in(source, "int c;", 1) == 0


def test_without_a_gpu_it_says_so_and_torchs_other_functions_are_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "torch.utils.cpp_extension"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(torch.utils, "cpp_extension", None, raising=False)
    Extensions(Recorder(lambda launch: None), None, "", [])
    with pytest.raises(NvccError, match=r"gym\.device=cuda"):
        importlib.import_module(name).load_inline("softmax", "", "")
    assert importlib.import_module(name).include_paths()


@pytest.fixture
def builder() -> Iterator[Builder]:
    """A real one: compilers in cages, whose users may pass through the folder."""
    if toolkit() is None:
        pytest.skip("no CUDA toolkit on this machine")
    channel: socket.socket = _start_fork_server({"build": build}, ())
    with channel, tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o711)
        yield Builder(ForkServer(channel), base, "90", Store(f"{base}/builds"))


def _sources(file: str, **changed: Any) -> Sources:
    text = text_of(file)
    [cuda] = re.findall(r'r"""(.*?)"""', text, re.DOTALL)
    cpp = "torch::Tensor run(torch::Tensor x);"
    return Sources(
        cpp=(cpp,), cuda=(cuda,), functions=("run",), cflags=(), cuda_cflags=(), implicit_headers=True
    ).model_copy(update=changed)


@pytest.mark.slow
def test_a_library_and_its_device_code_are_built_once(builder: Builder) -> None:
    built = builder.build(_sources("honest_cuda_cpp"))
    assert isinstance(built, Extension), built
    assert b"dojo_watch" in built.library and built.library.startswith(b"\x7fELF")
    assert b"softmax_rows" in built.image
    assert builder.build(_sources("honest_cuda_cpp")) is built


@pytest.mark.slow
def test_what_a_judge_built_is_there_for_the_next_one(builder: Builder, tmp_path: Path) -> None:
    built = builder.build(_sources("honest_cuda_cpp"))
    next_one = Builder(_dead_fork_server(), str(tmp_path), "90", builder.shelf)
    assert next_one.build(_sources("honest_cuda_cpp")) == built
    with pytest.raises(ForkServerLost):
        next_one.build(_sources("wrong_cuda_cpp_type"))


def test_a_candidate_is_not_blamed_for_a_compiler_that_was_killed() -> None:
    wanted = {"build": _sources("honest_cuda_cpp").model_dump()}

    def ask_for_a_build(channel: socket.socket, _: dict[str, Any]) -> None:
        framing.receive(channel)
        framing.send(channel, wanted)
        framing.receive(channel)

    dead = _dead_fork_server()
    alive = ForkServer(_start_fork_server({"ask": ask_for_a_build}, ()))
    cage = {"memory_bytes": 1 << 34, "cpu_seconds": 10, "max_processes": 1}
    with open_caged_child(alive, "ask", tempfile.gettempdir(), 10.0, **cage) as talk:
        talk.build_with(lambda _: ({"exit": dead.end(1)}, b""))
        with pytest.raises(ForkServerLost):
            talk.ask({"source": ""}, (Loaded,))


def _dead_fork_server() -> ForkServer:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ForkServer(ours)


@pytest.mark.slow
def test_what_does_not_compile_is_told_with_its_line(builder: Builder) -> None:
    refused = builder.build(_sources("wrong_cuda_cpp_type"))
    assert refused == BuildFailed(failed='identifier "total" is undefined', part="cuda", line=3)


@pytest.mark.parametrize(
    "option",
    [
        "-wrapper",
        *(
            pytest.param(option, marks=pytest.mark.exhaustive)
            for option in ("x.o", "-Xcompiler", "-Wa,-I/x", "-fplugin=x.so", "-include", "@file")
        ),
    ],
)
def test_options_that_start_programs_or_name_files_are_refused(builder: Builder, option: str) -> None:
    for place in ("cflags", "cuda_cflags"):
        refused = builder.build(_sources("honest_cuda_cpp", **{place: ("-O3", "--use_fast_math", option)}))
        assert refused == BuildFailed(failed=f"the compiler option {option} is not allowed", part="", line=0)
