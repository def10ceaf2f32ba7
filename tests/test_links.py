"""Links of the documents lead somewhere, and no text names a benchmark that is not there."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_BENCHMARK = re.compile(r"(?<![0-9a-f]:)\bbenchmarks/(?!NAME)(\w+\.py)")
_FOLDERS = ("flows", "tasks", "kernel_core", "benchmarks", "tests", "docs", "data", "deploy", ".ci")
_NAMES = ("justfile", "*.toml", "*.yaml", "*.md")


def pages() -> list[Path]:
    """Return every document that a reader meets."""
    documents = [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *REPOSITORY.glob("*/README.md"),
    ]
    return sorted(set(documents))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in _HEADING.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = found[anchor] = found.get(anchor, -1) + 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors


def faults_of(page: Path) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading of one."""
    faults = []
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            faults.append(f"{target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            faults.append(f"{target}: no such heading")
    return faults


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    faults = {str(page.relative_to(REPOSITORY)): found for page in pages() if (found := faults_of(page))}
    assert not faults


def test_no_text_names_a_benchmark_that_is_gone() -> None:
    files = [file for pattern in _NAMES for file in REPOSITORY.glob(pattern)]
    files += [file for folder in _FOLDERS for file in (REPOSITORY / folder).rglob("*") if file.is_file()]
    texts = {
        file: file.read_text()
        for file in files
        if file.suffix in (".md", ".py", ".toml", ".yaml", ".txt", "")
    }
    gone = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file, text in texts.items()
        for name in _BENCHMARK.findall(text)
        if not (REPOSITORY / "benchmarks" / name).exists()
    }
    assert not gone


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `page`\n\n[a](#a-page) [b](#nothing) [c](none.md) [d](https://e.org) `[e](none)`\n")
    assert faults_of(page) == ["#nothing: no such heading", "none.md: no such file"]
