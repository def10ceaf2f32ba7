"""Plain words: banned constructions in prose, and variables without a role, may only become fewer.

`python tests/test_words.py` prints what is left; `--write` lowers the numbers in `words_left.json`.
"""

from __future__ import annotations

import ast
import functools
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
_ROW = re.compile(r"^[^`\n]+ \| [^`\n]+$", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_TABLE_OR_CODE = re.compile(r"^(\||    ).*$", re.MULTILINE)
_COMMAND_OR_TREE = re.compile(r"^ +(python|dojo|[A-Z_]+=\S+ python) .*$|^.*[├└│].*$", re.MULTILINE)
_NO_ROLE = {"one", "found", "said", "told"}
_PROGRAM = re.compile(r"^(import|from) \w+", re.MULTILINE)


def texts_of(path: Path) -> Iterator[str]:
    """The prose of a file: a document whole, of code its docstrings, comments and long messages.

    Text with `tl.` is a template of a kernel, which is code. Lines without punctuation are a list of names,
    and lines with bars are a table.
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
    for node in nodes_of(text):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 3:
            is_list = _NAMES.fullmatch(node.value) or _ROW.search(node.value)
            is_code = "tl." in node.value or _PROGRAM.search(node.value) or is_list
            yield "" if is_code else _CODE.sub("x", _COMMAND_OR_TREE.sub("", node.value))


@functools.lru_cache(maxsize=1)
def nodes_of(text: str) -> list[ast.AST]:
    """The syntax tree of a module's text, node by node."""
    return list(ast.walk(ast.parse(text)))


def faults_of(path: Path) -> list[str]:
    """Banned constructions in a file's prose, and variables whose names do not say what the value is."""
    faults = []
    for text in texts_of(path):
        faults += [f"pronoun: {match[0]}: {text.strip()[:80]}" for match in _PRONOUN.finditer(text)]
        if path.suffix == ".py" and text.lstrip().startswith("Of "):
            faults.append(f"begins with Of: {text.strip()[:80]}")
        if path.suffix == ".py" and _QUESTION.match(text.lstrip()):
            faults.append(f"begins as a question: {text.strip()[:80]}")
        for sentence in _SENTENCE_END.split(text):
            if len(re.findall(r"[A-Za-z][\w'-]*", sentence)) > MOST_WORDS:
                faults.append(f"over {MOST_WORDS} words: {sentence.strip()[:80]}")
    if path.suffix == ".py":
        faults += [f"variable: {name}: line {line}" for name, line in variables_without_role(path)]
    return faults


def variables_without_role(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each binding in `_NO_ROLE`: variables, parameters, fields and attributes."""
    for node in nodes_of(path.read_text()):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case _:
                continue
        if name in _NO_ROLE:
            yield name, node.lineno


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
    """Count the faults of each file with any."""
    by_file = {str(path.relative_to(REPOSITORY)): len(faults_of(path)) for path in paths()}
    return {name: count for name, count in by_file.items() if count}


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


def test_each_binding_of_a_name_without_a_role_counts(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "class Row:\n    told: int\n\n    def take(self, one, done):\n"
        "        self.said = [found for found in one]\n"
        "        try:\n            return self.said\n"
        "        except ValueError as found:\n            return found\n"
    )
    assert sorted(variables_without_role(path)) == [
        ("found", 5),
        ("found", 8),
        ("one", 4),
        ("said", 5),
        ("told", 2),
    ]


if __name__ == "__main__":
    if "--write" in sys.argv:
        LEFT.write_text(json.dumps(counts(), indent=1, sort_keys=True) + "\n")
    chosen = [arg for arg in sys.argv[1:] if not arg.startswith("-")]
    for path in paths():
        name = str(path.relative_to(REPOSITORY))
        if not chosen or any(name.startswith(prefix) for prefix in chosen):
            for fault in faults_of(path):
                print(f"{name}: {fault}")
    print(sum(counts().values()), "left")
