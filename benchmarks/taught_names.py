"""The names that a cold start shows to a model, as pieces of text of its tokenizer.

    KERNELBENCH_ROOT=KB python benchmarks/taught_names.py --model FOLDER --conversations FILE.jsonl.gz

A model that never saw a piece behind `tl.load` may leave out the parenthesis in front of it. So this prints
how many pieces and names were seen there, and how many names of other problems begin with one of them.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from carryover import packed_rows

from kernel_core.config import ProblemsConfig
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.problems.load import load_problems
from kernel_core.problems.modules.generate import RESERVED, generate_modules

_LOADED = re.compile(r"tl\.load\((\w+)")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a tokenizer")
    parser.add_argument("--conversations", required=True, help="of `carryover.py draw`")
    arguments = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    rows = packed_rows(Path(arguments.conversations))
    answers = [Conversation.model_validate(row).answer for row in rows]
    names = {name for answer in answers for name in _LOADED.findall(answer)}
    seen = {_piece(tokenizer, name) for name in names}
    tokens = sum(len(tokenizer(answer)["input_ids"]) for answer in answers)
    print(f"{len(answers)} answers of {tokens / len(answers):.1f} tokens on average")
    print(f"names that are loaded from: {len(names)}; pieces behind `tl.load`: {len(seen)}")
    for title, wanted in _other_names():
        known = [name for name in wanted if _piece(tokenizer, f"{name}_ptr") in seen]
        print(f"{title}: {len(known)} of {len(wanted)}; not {', '.join(sorted(wanted - set(known)))}")


def _piece(tokenizer: Any, name: str) -> str:
    """The piece of text that follows `tl.load`."""
    head = "    value = tl.load"
    text = f"{head}({name} + offsets, mask=mask)"
    offsets = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    return next(text[start:end] for start, end in offsets if end > len(head))


def _other_names() -> Iterator[tuple[str, set[str]]]:
    held_out = [made.problem.source for made in generate_modules("held_out", 100, 0, sorted(RESERVED))]
    suites = {"families held out whole": held_out}
    if os.environ.get("KERNELBENCH_ROOT"):
        problems = load_problems(ProblemsConfig(suite="kernelbench", split="all"))
        suites["KernelBench"] = [one.source for one in problems]
    for title, sources in suites.items():
        for function in ("forward", "__init__"):
            yield f"{title}, arguments of {function}", set(_arguments(sources, function))


def _arguments(sources: Iterable[str], wanted: str) -> Iterator[str]:
    for source in sources:
        models = [node for node in ast.parse(source).body if getattr(node, "name", "") == "Model"]
        for node in (one for model in models for one in ast.walk(model)):
            if isinstance(node, ast.FunctionDef) and node.name == wanted:
                yield from (one.arg for one in node.args.args[1:])


if __name__ == "__main__":
    main()
