"""Answers to a problem of any source: its own classes, some of their layers as kernels.

The answer copies what the problem defines. Whether the copy computes the same is the judge's to say: a layer
may be given another setting by a caller, or take another shape.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.layer_swap.arithmetic import longest_lines
from kernel_core.problems.layer_swap.parts import Part
from kernel_core.problems.layer_swap.sites import Edit, Site, edited, sites
from kernel_core.problems.syntax import Spans, syntax_tree
from kernel_core.records import Problem

_MOST_ALONE = 2
"""Answers with one layer or function each; another has two, and more have a line of arithmetic."""
_KERNELS = ("@_kernel", "_@_kernel", "@_fwd", "@_forward_kernel", "triton_@_kernel")
_HOSTS = ("triton_@", "fast_@", "own_@", "@_by_kernel", "launch_@")
_CLASSES = ("Triton@", "Fast@", "Own@", "Kernel@", "Fused@", "@Kernel")
_SETTINGS = ("get_inputs", "get_init_inputs")


def swapped(problem: Problem, rng: random.Random) -> list[GradedKernel]:
    """Answers that differ in the parts that are kernels; none where the text asks for none."""
    tree, spans = syntax_tree(problem.source), Spans(problem.source)
    removed = list(_without_settings(tree, spans))
    found: dict[str, list[Site]] = {}
    for site in sites(tree, spans):
        if not any(_is_within(site.edits[0], one) for one in removed):
            found.setdefault(site.part.name, []).append(site)
    names = rng.sample(list(found), len(found))
    chosen: list[tuple[str, ...]] = [(name,) for name in names[:_MOST_ALONE]]
    chosen += [(names[0], names[1])] if len(names) > 1 else []
    named = (
        one for one in _model_named_new(tree, spans) if not any(_is_within(one, other) for other in removed)
    )
    common = [*removed, *named]
    groups = [[found[name] for name in one] for one in chosen] + [
        [[line]] for line in longest_lines(tree, spans)
    ]
    return [_answer(tree, spans, common, one, rng) for one in groups]


def _is_within(one: Edit, other: Edit) -> bool:
    return other.start <= one.start < other.end


def _answer(
    tree: ast.Module,
    spans: Spans,
    common: Sequence[Edit],
    groups: Sequence[Sequence[Site]],
    rng: random.Random,
) -> GradedKernel:
    edits = list(common)
    texts, taken = [], set(_names_in(tree))
    for group in groups:
        part = group[0].part
        kernel, host, layer = _names(part, taken, rng)
        named = (("@K", kernel), ("@F", host), ("@C", layer))
        edits += [replace(edit, text=_named(edit.text, named)) for site in group for edit in site.edits]
        texts.append(_named(part.written(any(site.is_layer for site in group)), named))
    lines = edited(spans.source, edits).split("\n")
    last = max(node.end_lineno or 0 for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    first = min(node.lineno for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    head = [*lines[first - 1 : last], "import triton", "import triton.language as tl"]
    body = "\n".join(lines[last:]).strip("\n")
    source = "\n".join(head) + "\n\n\n" + "\n\n".join(texts) + "\n\n" + body + "\n"
    return GradedKernel(
        grade="fused", source=source, thinking=_thinking(tree, [one[0].part for one in groups])
    )


def _named(text: str, names: Sequence[tuple[str, str]]) -> str:
    for mark, name in names:
        text = text.replace(mark, name)
    return text


def _names(part: Part, taken: set[str], rng: random.Random) -> tuple[str, str, str]:
    found = []
    for patterns, stem in ((_KERNELS, part.name), (_HOSTS, part.name), (_CLASSES, part.layer)):
        names = [one.replace("@", stem) for one in patterns]
        name = rng.choice([one for one in names if one not in taken] or [f"{names[0]}_{len(taken)}"])
        taken.add(name)
        found.append(name)
    return found[0], found[1], found[2]


def _names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _without_settings(tree: ast.Module, spans: Spans) -> Iterator[Edit]:
    """Takes away what makes inputs, and constants that nothing else reads."""
    constants = [node for node in tree.body if isinstance(node, ast.Assign)]
    kept = [node for node in tree.body if not _is_setting(node) and node not in constants]
    read = {name for node in kept for name in _names_in(node)}
    for node in reversed(tree.body):
        if node in constants and read.intersection(name for one in node.targets for name in _names_in(one)):
            read.update(_names_in(node))
        elif node in constants or _is_setting(node):
            yield Edit(spans.start(node), spans.end(node), "")


def _is_setting(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in _SETTINGS


def _model_named_new(tree: ast.Module, spans: Spans) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            start = spans.start(node) + len("class ")
            yield Edit(start, start + len("Model"), "ModelNew")
        elif isinstance(node, ast.Name) and node.id == "Model":
            yield Edit(spans.start(node), spans.end(node), "ModelNew")


def _thinking(tree: ast.Module, parts: Sequence[Part]) -> str:
    """Why the module stays, which parts become kernels, and how their work is split."""
    helpers = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "Model"]
    if len(helpers) > 1:
        stays = f"The problem has {len(helpers)} classes of its own; all stay, with their parameters."
    elif helpers:
        stays = f"{helpers[0]} stays as it is, with its parameters."
    else:
        stays = "The module stays as it is, with its parameters."
    said = [f"{part.name.replace('_', ' ')}: {part.says}." for part in parts]
    word = "This becomes a kernel" if len(said) == 1 else "These become kernels"
    return f"{stays} {word}. {' '.join(one[0].upper() + one[1:] for one in said)}"
