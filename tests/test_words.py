"""Plain words: banned constructions in docstrings, comments, messages and documents may only become fewer.

`python tests/test_words.py` prints what is left; `--write` lowers the numbers in `words_left.json`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LEFT = Path(__file__).with_name("words_left.json")
CODE_FOLDERS = ("flows", "tasks", "kernel_core", "benchmarks")
MOST_WORDS = 30

_PRONOUN = re.compile(
    r"(?<![A-Za-z'`-])(who|whoever|whom|nobody|somebody|anybody)(?![A-Za-z'`])", re.IGNORECASE
)
_QUESTION = re.compile(r"(What|Whether|How|Which|Where) ")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*|] |\n\s*\d+\. ")
_NAMES = re.compile(r"\n[\w\s]+")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_TABLE_OR_CODE = re.compile(r"^(\||    ).*$", re.MULTILINE)
_COMMAND_OR_TREE = re.compile(r"^ +(python|dojo|[A-Z_]+=\S+ python) .*$|^.*[├└│].*$", re.MULTILINE)
_PROGRAM = re.compile(r"^(import|from) \w+", re.MULTILINE)


def texts_of(path: Path) -> Iterator[str]:
    """The prose of a file: a document whole, of code its docstrings, comments and long messages.

    Text with `tl.` is a template of a kernel, which is code. Lines without punctuation are a list of names.
    """
    text = path.read_text()
    if path.suffix == ".md":
        yield _CODE.sub("x", _TABLE_OR_CODE.sub("", text))
        return
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("# "))
    yield from comments
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 3:
            is_code = "tl." in node.value or _PROGRAM.search(node.value) or _NAMES.fullmatch(node.value)
            yield "" if is_code else _CODE.sub("x", _COMMAND_OR_TREE.sub("", node.value))


def faults_of(path: Path) -> list[str]:
    """Pronouns for processes and values, docstrings that begin with `Of` or as a question, long sentences."""
    found = []
    for text in texts_of(path):
        found += [f"pronoun: {match[0]}: {text.strip()[:80]}" for match in _PRONOUN.finditer(text)]
        if path.suffix == ".py" and text.lstrip().startswith("Of "):
            found.append(f"begins with Of: {text.strip()[:80]}")
        if path.suffix == ".py" and _QUESTION.match(text.lstrip()):
            found.append(f"begins as a question: {text.strip()[:80]}")
        for sentence in _SENTENCE_END.split(text):
            if len(re.findall(r"[A-Za-z][\w'-]*", sentence)) > MOST_WORDS:
                found.append(f"over {MOST_WORDS} words: {sentence.strip()[:80]}")
    return found


def paths() -> list[Path]:
    """All prose that a reader meets; exploits and problems are data."""
    code = [path for folder in CODE_FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    documents = [
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        *(REPOSITORY / "docs").rglob("*.md"),
    ]
    return sorted([*code, *documents, REPOSITORY / "data" / "README.md", REPOSITORY / "deploy" / "README.md"])


def counts() -> dict[str, int]:
    """Faults by file, files without one left out."""
    found = {str(path.relative_to(REPOSITORY)): len(faults_of(path)) for path in paths()}
    return {name: count for name, count in found.items() if count}


def test_no_file_gains_a_banned_construction() -> None:
    allowed = json.loads(LEFT.read_text())
    more = {
        name: faults_of(REPOSITORY / name) for name, count in counts().items() if count > allowed.get(name, 0)
    }
    assert not more, "\n".join(f"{name}: {fault}" for name, faults in more.items() for fault in faults)


def test_the_rules_find_what_they_ban(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Of a run, who asks first.\n\n' + "word " * 31 + '"""\n\nx = "a test; nobody knows it"\n'
    )
    kinds = sorted(fault.split(":")[0] for fault in faults_of(path))
    assert kinds == ["begins with Of", "over 30 words", "pronoun", "pronoun"]


if __name__ == "__main__":
    if "--write" in sys.argv:
        LEFT.write_text(json.dumps(counts(), indent=1, sort_keys=True) + "\n")
    chosen = [arg for arg in sys.argv[1:] if not arg.startswith("-")]
    for path in paths():
        name = str(path.relative_to(REPOSITORY))
        if not chosen or any(name.startswith(one) for one in chosen):
            for fault in faults_of(path):
                print(f"{name}: {fault}")
    print(sum(counts().values()), "left")
