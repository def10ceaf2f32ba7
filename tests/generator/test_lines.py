"""Lines of kernels are joined where nothing changes, and broken between arguments."""

from __future__ import annotations

import ast

from kernel_core.generator.lines import LONGEST, folded, joined


def test_a_line_that_is_read_once_joins_its_reader_with_the_brackets_it_needs():
    lines = ["total = x + y", "out = total * 2", "tl.store(out_ptr, out)"]
    assert joined(lines, {"total", "out"}) == ["    out = (x + y) * 2", "    tl.store(out_ptr, out)"]


def test_a_line_stays_whose_operands_change_before_it_is_read():
    lines = ["old = acc * 2", "acc = acc + x", "out = old + acc"]
    assert joined(lines, {"old"}) == [f"    {line}" for line in lines]


def test_a_line_stays_that_is_read_twice_or_in_a_loop():
    twice = ["total = x + y", "out = total * total"]
    looped = ["total = x + y", "for k in range(n):", "    acc += total"]
    assert joined(twice, {"total"}) == [f"    {line}" for line in twice]
    assert joined(looped, {"total"}) == [f"    {line}" for line in looped]


def test_an_offset_joins_its_pointer_without_brackets():
    lines = ["offsets = row * n + col", "x = tl.load(x_ptr + offsets, mask=mask)"]
    assert joined(lines, {"offsets"}) == ["    x = tl.load(x_ptr + row * n + col, mask=mask)"]


def test_long_lines_are_broken_and_mean_the_same():
    call = f"kernel[grid]({', '.join(f'argument_{k}' for k in range(12))}, text='a, (b')"
    total = f"size = (height + {' + '.join(f'padding_{k}' for k in range(9))} - 1) // stride + 1"
    for line in (call, total):
        text = folded(line)
        assert max(map(len, text.splitlines())) <= LONGEST < len(line)
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(line))


def test_a_long_line_keeps_the_brackets_of_its_indices():
    line = " * ".join(f"self.pool_of_a_long_name.kernel_size[{k}]" for k in range(4))
    launch = f"kernel[grid]({line}, total, {', '.join(f'argument_{k}' for k in range(12))})"
    for text in (line, f"size = {line}", launch):
        assert ast.dump(ast.parse(folded(text))) == ast.dump(ast.parse(text))
