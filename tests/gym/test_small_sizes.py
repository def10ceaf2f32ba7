"""Sizes for a CPU by a rule: small, odd where the problem takes that, and such that it still runs."""

import pytest

from kernel_core.config import GymConfig, ProblemsConfig
from kernel_core.gym.oracle.need import need_of
from kernel_core.gym.oracle.small_sizes import (
    MOST_BYTES,
    TILES,
    load_sized,
    with_fewer_bytes,
    with_larger_sizes,
    with_small_sizes,
)
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_all
from kernel_core.problems.source import parse_problem, resize

SOURCE = """
import torch
import torch.nn as nn

{sizes}

class Model(nn.Module):
    def __init__(self{names}):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return {forward}

def get_inputs():
    return [{input}]

def get_init_inputs():
    return [{given}]
"""


def without_layers(**parts):
    """The text of a module that computes by functions alone."""
    return SOURCE.format(names="", layer="nn.Identity()", given="", **parts)


LINEAR = SOURCE.format(
    sizes="batch_size = 1024\nin_features = 8192\nout_features = 8192",
    names=", a, b",
    layer="nn.Linear(a, b)",
    forward="torch.relu(self.layer(x))",
    input="torch.rand(batch_size, in_features)",
    given="in_features, out_features",
)
GROUPED = SOURCE.format(
    sizes="batch = 64\nchannels = 128\nwidth = 512\ngroups = 8\nkernel = 3",
    names=", c, g, k",
    layer="nn.Conv2d(c, c, k, groups=g)",
    forward="self.layer(x)",
    input="torch.rand(batch, channels, width, width)",
    given="channels, groups, kernel",
)
SQUARE = without_layers(
    sizes="rows = 32768\ncolumns = 32768",
    forward="x * torch.ones(columns)[:rows]",
    input="torch.rand(rows, rows)",
)

BROADCAST = without_layers(
    sizes="rows = 32768\nshape = (1024 * 32,)",
    forward="x * torch.ones(rows)",
    input="torch.rand(rows, *shape)",
)
"""The rows have to be as many as the tuple says."""
SOURCES = {"linear": LINEAR, "grouped": GROUPED, "square": SQUARE, "broadcast": BROADCAST}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_problem_of_gigabytes_gets_sizes_at_which_it_runs_in_a_fraction_of_a_megabyte(source):
    own = parse_problem(source, id="mine", suite="mine")
    assert need_of(own, {}).num_bytes > 300e6
    problem = with_small_sizes(own)
    sizes = problem.cpu_constants
    assert need_of(problem, sizes).num_bytes < 2 * MOST_BYTES
    assert all(1 <= value < problem.constants[name] for name, value in sizes.items())


def test_sizes_are_odd_where_a_problem_takes_that_and_fit_where_it_does_not():
    assert all(
        v % 2 for v in with_small_sizes(parse_problem(LINEAR, id="a", suite="a")).cpu_constants.values()
    )
    grouped = parse_problem(GROUPED, id="a", suite="a")
    sizes = grouped.constants | with_small_sizes(grouped).cpu_constants
    assert sizes["channels"] % sizes["groups"] == 0


def test_numbers_of_a_tuple_are_sizes_where_no_constant_suffices():
    broadcast, grouped = (parse_problem(source, id="a", suite="a") for source in (BROADCAST, GROUPED))
    small = with_small_sizes(broadcast)
    assert small.cpu_constants == {"rows": 129, "shape[0]": 129}
    assert "rows = 129\nshape = (129,)" in resize(small, small.cpu_constants).source
    assert with_small_sizes(grouped).constants == grouped.constants


def test_a_width_for_products_stays_one_where_others_can_be_divided():
    text = without_layers(
        sizes="batch = 64\nheads = 32\nrows = 256\nwidth = 32",
        forward="x @ x.transpose(-1, -2)",
        input="torch.rand(batch, heads, rows, width)",
    )
    problem = with_small_sizes(parse_problem(text, id="mine", suite="mine"), TILES)
    sizes = problem.constants | problem.cpu_constants
    assert min(sizes["rows"], sizes["width"]) >= 16
    assert need_of(problem, problem.cpu_constants).num_bytes <= 2 * MOST_BYTES


def test_widths_stay_whole_blocks_where_others_can_be_divided():
    text = without_layers(
        sizes="batch = 64\nslots = 96\nheads = 28\nwidth = 128",
        forward="x.unsqueeze(-1) * torch.ones(slots, heads, width, width)[:batch]",
        input="torch.rand(batch, heads, width)",
    )
    problem = with_small_sizes(parse_problem(text, id="mine", suite="mine"), TILES)
    sizes = problem.constants | problem.cpu_constants
    assert sizes["width"] == 64 and min(sizes.values()) > 1


def test_smaller_sizes_are_for_those_by_the_rule():
    own = parse_problem(LINEAR, id="mine", suite="mine")
    small = with_small_sizes(own, TILES)
    smaller = with_fewer_bytes(small)
    fewer, more = (need_of(one, one.cpu_constants).num_bytes for one in (smaller, small))
    assert fewer * 4 <= more
    named = parse_problem("# cpu: batch_size=8\n" + LINEAR, id="mine", suite="mine")
    assert with_fewer_bytes(named) is None


def test_few_rows_keep_their_own_width():
    text = without_layers(
        sizes="rows = 8192\ncolumns = 4096", forward="x.softmax(-1)", input="torch.rand(rows, columns)"
    )
    small = with_small_sizes(parse_problem(text, id="mine", suite="mine"), TILES)
    assert small.cpu_constants == {"rows": 128}
    assert with_larger_sizes(small) is None, "its columns would be fewer"


COPIES = """
import time
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def twice(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, 2 * tl.load(x_ptr + index, mask=index < count), mask=index < count)

class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] == {late}:
            time.sleep(60)
        out = torch.empty_like(x)
        twice[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def _judged(own, sources, gym):
    requests = [request_of(own, source, {}, 1, "cpu") for source in sources]
    return judge_all(requests, "cpu", gym.judge_each)


def test_a_kernel_that_is_late_at_sizes_by_the_rule_is_judged_at_smaller_ones(brief_gym):
    text = without_layers(
        sizes="rows = 1048576",
        forward="2 * x",
        input="torch.rand(rows, 16)",
    )
    own = parse_problem(text, id="mine", suite="mine")
    late = with_small_sizes(own, TILES).cpu_constants["rows"]
    first, second = _judged(own, [COPIES.format(late=one) for one in (late, 3)], brief_gym)
    assert first.outcome.correct and second.outcome.correct, first.outcome
    sizes = [one.report(GymConfig())["sizes"]["rows"] for one in (first, second)]
    assert sizes[0] < sizes[1] == late


BLOCKS_OF_512 = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def largest(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    x = tl.load(x_ptr + row * count + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + row * (count // BLOCK) + block, tl.max(x) {error})

class ModelNew(nn.Module):
    def forward(self, x):
        rows, count = x.shape
        out = torch.empty(rows, count // 512, device=x.device)
        largest[(rows, count // 512)](x, out, count, BLOCK=512)
        return out.max(-1).values
"""


def test_a_kernel_with_wide_blocks_is_judged_once_more_at_sizes_that_keep_them(gym):
    text = without_layers(
        sizes="columns = 8192",
        forward="x.max(-1).values",
        input="torch.rand(columns, columns)",
    )
    own = parse_problem(text, id="mine", suite="mine")
    small = with_small_sizes(own, TILES)
    assert small.cpu_constants["columns"] < 512 <= with_larger_sizes(small).cpu_constants["columns"]
    right, wrong = _judged(own, [BLOCKS_OF_512.format(error=one) for one in ("", "+ 0.5 * row")], gym)
    assert right.outcome.correct, right.outcome
    assert right.report(GymConfig())["sizes"]["columns"] >= 512
    assert not wrong.outcome.correct
    assert wrong.report(GymConfig())["sizes"]["columns"] == small.cpu_constants["columns"]


READS_VALUES = """
import torch
import torch.nn as nn

SEQUENCES = 64
LONGEST = 4096
HEADS = 32
WIDTH = 64

class Model(nn.Module):
    def forward(self, x, starts):
        bounds = starts.tolist()
        return torch.cat([x[a:b].softmax(0) for a, b in zip(bounds[:-1], bounds[1:])])

def get_inputs():
    lengths = torch.randint(1, LONGEST + 1, (SEQUENCES,))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return [torch.randn(int(starts[-1]), HEADS, WIDTH), starts]

def get_init_inputs():
    return []
"""


def test_a_problem_that_reads_values_grows_from_sizes_at_which_it_runs():
    own = parse_problem(READS_VALUES, id="mine", suite="mine")
    assert need_of(own, {}) is None, "there are no values on the meta device"
    sizes = with_small_sizes(own).cpu_constants
    assert set(sizes) == {"SEQUENCES", "LONGEST", "HEADS", "WIDTH"}
    assert MOST_BYTES / 16 < need_of(own, sizes, "cpu").num_bytes < 2 * MOST_BYTES


def test_a_problem_that_runs_at_no_sizes_keeps_its_own():
    broken = parse_problem(READS_VALUES.replace("softmax(0)", "softmax(7)"), id="mine", suite="mine")
    assert with_small_sizes(broken).cpu_constants == {}


def test_a_judgement_on_a_cpu_takes_them_and_one_on_a_gpu_does_not():
    own = parse_problem(LINEAR, id="mine", suite="mine")
    small = with_small_sizes(own, TILES).cpu_constants
    assert set(small) == {"batch_size", "in_features", "out_features"}
    assert not any(value % 2 for value in small.values()), "a kernel may rely on a power of two"
    assert request_of(own, "", {}, None, "cpu").run_sizes("cpu") == small
    assert request_of(own, "", {}, None, "cuda").run_sizes("cuda") == {}
    named = {"batch_size": 5}
    assert request_of(own, "", named, None, "cpu").run_sizes("cpu") == named


def test_a_problem_keeps_the_sizes_that_it_names_itself():
    problem = parse_problem(f"# cpu: batch_size=7\n{LINEAR}", id="mine", suite="mine")
    assert with_small_sizes(problem) is problem


@pytest.mark.parametrize(("sizes", "are_small"), [("own", False), ("small", True)])
def test_a_setting_asks_for_them(tmp_path, sizes, are_small):
    (tmp_path / "linear.py").write_text(LINEAR)
    (problem,) = load_sized(ProblemsConfig(suite=str(tmp_path), split="all", sizes=sizes))
    assert bool(problem.cpu_constants) == are_small
