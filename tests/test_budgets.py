"""Budgets: a file holds one idea, a function fits a screen, and every setting is set somewhere."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

import kernel_core.config
from flows.presets import STAGES, build_parameters, preset, presets
from kernel_core.config import Config
from kernel_core.reward.presets import REWARD_PRESETS

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("flows", "tasks", "kernel_core")
MANY_LINES_A_FILE = 400
MOST_LINES_A_FUNCTION = 60
UNSET_SETTINGS = frozenset(
    {
        "ColdStartConfig.weight_decay",
        "GymConfig.warm_runners",
        "TrainConfig.dual_clip",
        "TrainConfig.entropy_coefficient",
    }
)
"""No preset sets them and no document names them: they wait to become constants. The list only shrinks."""
MOST_CODE_LINES_OF_FLOWS = 2524
"""The bar of 1,500 is missed. Raised from 2,426 for `dojo teach`, stored answers and progress lines, and from
2,520 by the 71 lines of the flow and the command of `dojo optimize`."""
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_CODE = re.compile(r"```.*?```|`[^`]+`|^    [^\n]+$", re.DOTALL | re.MULTILINE)


def _sources() -> dict[str, str]:
    paths = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    return {str(path.relative_to(REPOSITORY)): path.read_text() for path in sorted(paths)}


def test_long_files_are_named() -> None:
    for name, text in _sources().items():
        if text.count("\n") > MANY_LINES_A_FILE:
            warnings.warn(f"{name} has over {MANY_LINES_A_FILE} lines: does it hold two ideas?", stacklevel=1)


def test_no_function_is_over_its_budget() -> None:
    long = {
        f"{name} {node.name}"
        for name, text in _sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MOST_LINES_A_FUNCTION
    }
    assert long == set()


def code_lines(folder: str) -> int:
    """Lines of a folder's modules that are no blank lines, comments or docstrings."""
    count = 0
    for name, text in _sources().items():
        if not name.startswith(f"{folder}/"):
            continue
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(ast.parse(text)):
            is_text = isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
            if is_text:
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        count += len(lines)
    return count


def test_flows_grow_no_longer() -> None:
    assert code_lines("flows") <= MOST_CODE_LINES_OF_FLOWS


def _set_in(value: object) -> Iterator[str]:
    """`Class.field` of each field that is given in a config and in all configs inside it."""
    if isinstance(value, Config):
        for name in value.model_fields_set:
            yield f"{type(value).__name__}.{name}"
            yield from _set_in(getattr(value, name))
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _set_in(part)


def _set_by_presets() -> set[str]:
    chosen = [build_parameters(stage, preset(stage, name)) for stage in STAGES for name in presets(stage)]
    return {field for parameters in (*chosen, REWARD_PRESETS) for field in _set_in(parameters)}


def _words_of_recipes() -> set[str]:
    """Words in the commands and code of documents, and in the justfile."""
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("*/README.md")]
    pages.remove(REPOSITORY / "docs" / "settings.md")  # made from the configs: it names every setting
    code = [span for page in pages for span in _CODE.findall(page.read_text())]
    return set(re.findall(r"\w+", "\n".join([*code, (REPOSITORY / "justfile").read_text()])))


def test_every_setting_is_set_by_a_preset_or_named_by_a_document() -> None:
    classes = [one for one in vars(kernel_core.config).values() if isinstance(one, type)]
    known, words = _set_by_presets(), _words_of_recipes()
    unset = {
        f"{config.__name__}.{name}"
        for config in classes
        if issubclass(config, Config)
        for name in config.model_fields
        if name not in words and not any(field.endswith(f".{name}") for field in known)
    }
    assert unset == UNSET_SETTINGS
