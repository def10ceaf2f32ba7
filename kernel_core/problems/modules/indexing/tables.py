"""Ways to read tables: rows by index, bags of rows, pairs of halves under two tables, scores under one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.modules.indexing import views
from kernel_core.problems.modules.indexing.draws import HIDDEN, Program, draw_sizes
from kernel_core.problems.modules.indexing.views import Axis, View
from kernel_core.problems.program import Size

_NAMES = (("a", "b", "c"), ("u", "v", "w"), ("first", "second", "third"))
_WIDTHS = (64, 100, 128, 200, 256, 300, 512, 768, 1000, 1024)
_COUNTS = (10000, 20000, 30000, 32000, 50000)
_NUMBERS = ("factor", "slope", "temperature", "strength", "multiplier")
_TABLES = (("gain", "bias"), ("scale", "shift"), ("alpha", "beta"), ("p", "r"))


def draw_table_program(rng: random.Random) -> Program:
    """Values of which one at least comes from a table; a number of the module may change one of them."""
    kinds = (looked_up_rows, looked_up_bags, halves_under_tables, scores_under_a_table)
    program = rng.choice(kinds)(rng)
    if rng.random() < 0.6:
        return program
    return replace(program, number=rng.choice(_NUMBERS), value=str(round(rng.uniform(0.2, 2.5), 2)))


def looked_up_rows(rng: random.Random) -> Program:
    """Rows by an index of one or two dimensions, and something beside them: never rows alone."""
    dims = rng.choice((1, 2))
    index = ("num_indices",) if dims == 1 else rng.choice((("batch_size", "seq_len"), ("batch", "tokens")))
    counts = ((16384, 30000, 32768),) if dims == 1 else ((16, 32, 48, 64), (256, 500, 512, 1000))
    total = rng.choice(("num_rows", "vocab_size", "num_entries"))
    sizes = (
        Size(total, rng.choice(_COUNTS), rng.randint(11, 23)),
        *(Size(name, rng.choice(few), rng.randint(3, 5)) for name, few in zip(index, counts, strict=True)),
        Size("features", rng.choice(_WIDTHS), rng.randint(18, 45)),
    )
    axis = Axis(dims + 1, -1)
    a, b, _ = rng.choice(_NAMES)
    layer = (total, "features") if rng.random() < 0.4 else ()
    reads = [_rows(a, "x", "index", rng, flat=dims == 1, layer=bool(layer))]
    kind = rng.choice(("other", "extra", "beside", "beside", "beside"))
    if kind != "beside":
        source, at = ("x", "other") if kind == "other" else ("extra", "index")
        owned = bool(layer) and source == "x"
        reads.append(_rows(b, source, at, rng, flat=dims == 1, layer=owned))
    if kind == "beside" or rng.random() < 0.4:
        reads.append(_beside_rows(axis, rng))
    drawn = {**_looked_up(total, index), "table": f"torch.randn({index[-1]}, features)"}
    return Program(axis, tuple(reads), sizes, (*index, "features"), drawn=drawn, layer=layer)


def _looked_up(total: str, index: Sequence[str]) -> dict[str, str]:
    """The draws of two tables of so many rows, and of two indices of the given shape."""
    table = f"torch.randn({total}, features)"
    positions = f"torch.randint(0, {total}, ({', '.join(index)}{',' * (len(index) == 1)}))"
    return {"x": table, "extra": table, "index": positions, "other": positions}


def _rows(name: str, source: str, index: str, rng: random.Random, *, flat: bool, layer: bool) -> View:
    texts = [f"{source}[{index}]", f"F.embedding({index}, {source})"]
    if flat:
        texts += [f"torch.index_select({source}, 0, {index})", f"{source}.index_select(0, {index})"]
    if layer:
        texts = [f"self.embedding({index})"]
    return View(name, source, (f"{name} = {rng.choice(texts)}",), "rows", index=index)


def _beside_rows(axis: Axis, rng: random.Random) -> View:
    """An operand of the looked-up rows' shape, or broadcast to it."""
    if axis.rank > 2 and rng.random() < 0.3:
        return View("table", "table", operator="table")
    while (operand := views.beside(axis, "{n}", rng)) is None or operand.source == "table":
        pass
    return operand


def looked_up_bags(rng: random.Random) -> Program:
    """Bags of looked-up rows, and something beside them; the axis runs through a bag."""
    names = rng.choice((("batch_size", "bag_size"), ("num_bags", "per_bag"), ("batch", "neighbors")))
    total = rng.choice(("num_rows", "vocab_size", "num_nodes"))
    sizes = (
        Size(total, rng.choice(_COUNTS), rng.randint(11, 23)),
        Size(names[0], rng.choice((1024, 2000, 2048, 4096)), rng.randint(3, 5)),
        Size(names[1], rng.choice((8, 10, 16, 20, 32)), rng.randint(3, 7)),
        Size("features", rng.choice((64, 100, 128, 200, 256)), rng.randint(9, 40)),
    )
    axis = Axis(3, rng.choice((1, 1, -2)))
    a, b, _ = rng.choice(_NAMES)
    layer = (total, "features") if rng.random() < 0.5 else ()
    reads = [_bag(a, "x", "index", layer=bool(layer))]
    for kind in rng.sample(("other", "extra", "weights", "query", "y"), rng.choice((1, 1, 2))):
        if kind == "weights":
            reads.append(View("g", "weights", ("g = weights.unsqueeze(-1)",), "member_value"))
        elif kind == "query":
            line = f"k = query{rng.choice(('.unsqueeze(1)', '[:, None, :]'))}"
            reads.append(View("k", "query", (line,), "bag_row"))
        elif kind == "y":
            reads.append(View("y", "y", operator="tensor"))
        elif not any(view.name == b for view in reads):
            source, at = ("x", "other") if kind == "other" else ("extra", "index")
            reads.append(_bag(b, source, at, layer=bool(layer) and source == "x"))
    drawn = {
        **_looked_up(total, names),
        "weights": f"torch.randn({', '.join(names)})",
        "query": f"torch.randn({names[0]}, features)",
    }
    return Program(axis, tuple(reads), sizes, (*names, "features"), drawn=drawn, layer=layer)


def _bag(name: str, source: str, index: str, *, layer: bool) -> View:
    text = f"self.embedding({index})" if layer else f"{source}[{index}]"
    return View(name, source, (f"{name} = {text}",), "rows", index=index)


def halves_under_tables(rng: random.Random) -> Program:
    """Two halves of the last dimension under one or two tables that repeat over other dimensions."""
    axis = Axis(rng.choice((3, 4, 4)), -1)
    geometry = views.halves(axis, rng)
    sizes = draw_sizes(axis, 2, rng)
    shape = tuple(size.name for size in sizes)
    between = axis.rank == 4 and rng.random() < 0.4
    rows = shape[1] if between else shape[-2]
    names = rng.choice(_TABLES)[: rng.choice((1, 2, 2, 2))]
    tables = [_table(name, rng if between else None) for name in names]
    return Program(
        axis,
        (*geometry.views, *tables),
        sizes,
        shape,
        geometry.length,
        gated=True,
        paired=len(names) == 2,
        drawn=dict.fromkeys(names, f"torch.randn({rows}, {shape[-1]} // 2)"),
    )


def scores_under_a_table(rng: random.Random) -> Program:
    """A tensor under a table that repeats over its leading dimensions, and perhaps a value for each row."""
    axis = Axis(rng.choice((3, 4)), -1)
    sizes = draw_sizes(axis, 1, rng)
    shape = tuple(size.name for size in sizes)
    name = rng.choice(("table", "slopes", "shifts", "prior"))
    reads = [View("x", "x"), View(name, name, operator="table")]
    if rng.random() < 0.4:
        reads.append(View("s", "s", operator="row_value"))
    if rng.random() < 0.4:
        hidden = View(HIDDEN, HIDDEN, operator="table")
        reads = [reads[0], *reads[2:], hidden] if len(reads) > 2 and rng.random() < 0.5 else [*reads, hidden]
    drawn = {
        name: f"torch.randn({', '.join(shape[-2:])})",
        HIDDEN: f"torch.rand({', '.join(shape[-2:])}) < 0.3",
    }
    return Program(axis, tuple(reads), sizes, shape, drawn=drawn)


def _table(name: str, rng: random.Random | None) -> View:
    """A table of the last two dimensions; with `rng` it belongs to dimension 1 and repeats over 2."""
    if rng is None:
        return View(name, name, operator="table")
    return View(name, name, (f"{name} = {name}{rng.choice(('.unsqueeze(1)', '[:, None, :]'))}",), "table")
