"""Sizes for a CPU by a rule: small, with the remainders of the own sizes, and such that it still runs."""

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym.oracle.need import need_of
from kernel_core.gym.oracle.small_sizes import (
    MOST_BYTES,
    divided,
    with_other_sizes,
    with_small_sizes,
)
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_all
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Verdict

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


@pytest.mark.parametrize(
    ("value", "divisor", "smaller"),
    [
        (8192, 16, 512),
        (8193, 16, 513),
        (8191, 16, 511),
        (65537, 4, 16385),
        (12288, 16, 768),
        (393216, 16, 24576),
        (1000, 4, 232),
        (50000, 2, 25424),
        (11008, 16, 768),
        (96, 4, 24),
        (7, 2, 3),
        (3, 2, None),
        (6, 2, None),
        (2, 2, 1),
    ],
)
def test_a_divided_size_keeps_its_remainder_its_parity_and_whether_it_is_a_power_of_two(
    value, divisor, smaller
):
    assert divided(value, divisor) == smaller


@pytest.mark.parametrize("columns", [8193, 8191, 65537, 100001, 12288, 4096, 393216])
def test_a_kernel_that_needs_a_mask_at_the_own_width_needs_one_at_the_small_width(columns):
    text = without_layers(
        sizes=f"rows = 4096\ncolumns = {columns}",
        forward="x.softmax(-1)",
        input="torch.rand(rows, columns)",
    )
    sizes = with_small_sizes(parse_problem(text, id="mine", suite="mine")).cpu_constants
    small = sizes.get("columns", columns)
    for block in (2, 16, 128, 1024):
        assert (small % block == 0) == (columns % block == 0)
    assert (small > 8192) == (columns > 8192)


def test_a_size_that_another_divides_stays_a_multiple_of_it():
    grouped = parse_problem(GROUPED, id="a", suite="a")
    sizes = grouped.constants | with_small_sizes(grouped).cpu_constants
    assert sizes["channels"] % sizes["groups"] == 0 and sizes["kernel"] == 3


def test_numbers_of_a_tuple_are_sizes_where_no_constant_suffices():
    broadcast, grouped = (parse_problem(source, id="a", suite="a") for source in (BROADCAST, GROUPED))
    small = with_small_sizes(broadcast)
    rows = small.cpu_constants["rows"]
    assert small.cpu_constants == {"rows": rows, "shape[0]": rows} and rows < 1024
    assert f"rows = {rows}\nshape = ({rows},)" in resize(small, small.cpu_constants).source
    assert with_small_sizes(grouped).constants == grouped.constants


IN_FUNCTIONS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width=8192):
        super().__init__()
        self.layer = nn.Linear(width, 2048)

    def forward(self, x):
        return self.layer(x)

def get_inputs({parameters}):
    return [torch.rand({shape})]

def get_init_inputs():
    return [8192]
"""


@pytest.mark.parametrize(
    ("parameters", "shape", "names"),
    [
        ("rows=4096, *, width=8192", "rows, width", {"get_inputs.rows", "get_inputs.width"}),
        ("", "4096, 8192", {"get_inputs[0]", "get_inputs[1]"}),
        ("", "64, 64, 8192", {"get_inputs[0]", "get_inputs[1]", "get_inputs[2]"}),
    ],
)
def test_numbers_of_functions_are_sizes(parameters, shape, names):
    own = parse_problem(IN_FUNCTIONS.format(parameters=parameters, shape=shape), id="a", suite="a")
    small = with_small_sizes(own)
    assert set(small.cpu_constants) <= names | {"get_init_inputs[0]"}
    assert need_of(small, small.cpu_constants).num_bytes < need_of(own, {}).num_bytes / 16


def test_a_width_for_products_stays_one_where_others_can_be_divided():
    text = without_layers(
        sizes="batch = 64\nheads = 32\nrows = 256\nwidth = 32",
        forward="x @ x.transpose(-1, -2)",
        input="torch.rand(batch, heads, rows, width)",
    )
    problem = with_small_sizes(parse_problem(text, id="mine", suite="mine"))
    sizes = problem.constants | problem.cpu_constants
    assert min(sizes["rows"], sizes["width"]) >= 16
    assert need_of(problem, problem.cpu_constants).num_bytes <= 2 * MOST_BYTES


def test_widths_stay_whole_blocks_where_others_can_be_divided():
    text = without_layers(
        sizes="batch = 64\nslots = 96\nheads = 28\nwidth = 128",
        forward="x.unsqueeze(-1) * torch.ones(slots, heads, width, width)[:batch]",
        input="torch.rand(batch, heads, width)",
    )
    problem = with_small_sizes(parse_problem(text, id="mine", suite="mine"))
    sizes = problem.constants | problem.cpu_constants
    assert sizes["width"] % 64 == 0 and min(sizes.values()) > 1


def test_smaller_sizes_are_for_those_by_the_rule():
    own = parse_problem(LINEAR, id="mine", suite="mine")
    small = with_small_sizes(own)
    smaller = with_other_sizes(small, Verdict.TIMED_OUT)[-1]
    fewer, more = (need_of(one, one.cpu_constants).num_bytes for one in (smaller, small))
    assert fewer * 4 <= more
    named = parse_problem("# cpu: batch_size=8\n" + LINEAR, id="mine", suite="mine")
    assert not with_other_sizes(named, Verdict.TIMED_OUT)


def test_fewer_rows_of_the_own_width_come_first_where_a_kernel_is_late():
    text = without_layers(
        sizes="tokens = 2048\ninner = 5504", forward="x * 2", input="torch.rand(tokens, inner)"
    )
    small = with_small_sizes(parse_problem(text, id="mine", suite="mine"))
    rows, steps = with_other_sizes(small, Verdict.TIMED_OUT)
    assert small.cpu_constants == {"tokens": 128}
    assert rows.cpu_constants == {"tokens": 4}
    assert steps.cpu_constants["inner"] < 5504


def test_a_late_kernel_is_judged_at_smaller_sizes_also_where_the_first_ones_are_the_own_sizes():
    text = without_layers(
        sizes="rows = 64\ncolumns = 512", forward="x * 2", input="torch.rand(rows, columns)"
    )
    own = parse_problem(text, id="mine", suite="mine")
    assert with_small_sizes(own) == own
    assert with_other_sizes(own, Verdict.TIMED_OUT)[0].cpu_constants == {"rows": 4}


def test_few_rows_keep_their_own_width():
    text = without_layers(
        sizes="rows = 8192\ncolumns = 4096", forward="x.softmax(-1)", input="torch.rand(rows, columns)"
    )
    small = with_small_sizes(parse_problem(text, id="mine", suite="mine"))
    assert small.cpu_constants == {"rows": 128}
    assert not with_other_sizes(small, Verdict.WRONG), "nothing larger is small enough"


def test_larger_sizes_have_room_for_tiles_because_batches_are_small():
    """A scan in blocks of 64 steps by 128 channels refuses fewer of either."""
    text = without_layers(
        sizes="batch = 16\nsteps = 2048\nchannels = 1024",
        forward="x.cumsum(1)",
        input="torch.rand(batch, steps, channels)",
    )
    small = with_small_sizes(parse_problem(text, id="mine", suite="mine"))
    (larger,) = with_other_sizes(small, Verdict.CRASHED)
    first, second = (sized.constants | sized.cpu_constants for sized in (small, larger))
    assert first["steps"] < 64 or first["channels"] < 128
    assert second["steps"] >= 64 and second["channels"] >= 128
    assert all(second[name] >= size for name, size in first.items()), "none becomes smaller"


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
    late = with_small_sizes(own).cpu_constants["rows"]
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
    small = with_small_sizes(own)
    (larger,) = with_other_sizes(small, Verdict.WRONG)
    assert small.cpu_constants["columns"] < 512 <= larger.cpu_constants["columns"]
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


def test_a_problem_keeps_the_sizes_that_it_names_itself():
    problem = parse_problem(f"# cpu: batch_size=7\n{LINEAR}", id="mine", suite="mine")
    assert with_small_sizes(problem) is problem


def test_sizes_without_an_output_element_do_not_fit_together():
    source = (
        "import torch\n\nW = 1\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x[:, 1:] * 2\n\n\ndef get_inputs():\n    return [torch.rand(4, W)]\n"
    )
    problem = parse_problem(source, id="test/empty", suite="test")
    assert need_of(problem, {"W": 2}) is not None
    assert need_of(problem, {"W": 1}) is None


WINDOWS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, 49, c)

def get_inputs():
    return [torch.randn(8, 56, 56, 96)]
"""


def test_a_size_that_needs_a_factor_which_no_number_names_becomes_an_exact_part():
    sizes = with_small_sizes(parse_problem(WINDOWS, id="mine", suite="mine")).cpu_constants
    assert sizes == {"get_inputs[0]": 14, "get_inputs[1]": 14}


CACHE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, cache, x, places):
        return cache.index_copy(1, places, x)

def get_inputs():
    return [torch.zeros(8, ROWS, 256), torch.randn(8, 4, 256), torch.tensor([3, 17, 500, 900])]
"""


@pytest.mark.parametrize("rows", [1024, 4096])
def test_indices_that_a_reference_needs_stay_within_bounds(rows):
    own = parse_problem(CACHE.replace("ROWS", str(rows)), id="mine", suite="mine")
    small = with_small_sizes(own)
    assert need_of(small, small.cpu_constants, "cpu") is not None
