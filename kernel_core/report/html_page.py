"""Self-contained HTML file: style, and tables that sort and filter by a small script."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_CHARS = 4000
"""Characters shown of an answer; the tables of the run hold all of it."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em;
color: #222 }
h1 { font-weight: 600 } h2 { margin-top: 2em; font-weight: 600 } svg, img { max-width: 100%; height: auto }
.cards { display: flex; flex-wrap: wrap; gap: 1em } .card { flex: 1; background: #f5f7fa; padding: .8em 1.2em;
border-radius: 8px } .card b { display: block; font-size: 1.6em } .alarm { background: #fbeaea }
pre { background: #f7f7f7; padding: 1em; overflow: auto; max-height: 24em } .quiet { color: #777 }
table { border-collapse: collapse; font-size: 13px; margin: .5em 0 1.5em } th, td { padding: .25em .7em;
border-bottom: 1px solid #e3e3e3; text-align: left; vertical-align: top } td.number { text-align: right }
table.full th { cursor: pointer } input { font: inherit; padding: .2em .5em; width: 22em }
nav a { margin-right: 1em }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table.full")) {
  const body = table.tBodies[0], rows = [...body.rows];
  const filter = document.createElement("input"), count = document.createElement("span");
  filter.placeholder = "filter: words that a row must have"; count.className = "quiet";
  table.before(filter, count);
  filter.oninput = () => {
    const words = filter.value.toLowerCase().split(/\\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    count.textContent = ` ${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
  };
  filter.oninput();
  [...table.tHead.rows[0].cells].forEach((head, column) => head.onclick = () => {
    const sign = head.dataset.sign = head.dataset.sign === "1" ? "-1" : "1";
    const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
    });
    body.append(...rows);
  });
}
"""

Rows = Sequence[Mapping[str, Any]]


class Code(str):
    """Text that a cell shows folded, as it stands."""


def document(title: str, sections: Mapping[str, Sequence[str]]) -> str:
    """Return a page of sections, each a heading and its blocks of HTML, with links to them at the top."""
    names = {name: f"s{number}" for number, name in enumerate(sections)}
    links = "".join(f"<a href='#{at}'>{html.escape(name)}</a>" for name, at in names.items() if name)
    parts = [
        "<!doctype html><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1><nav>{links}</nav>",
    ]
    for name, blocks in sections.items():
        parts += [f"<h2 id={names[name]}>{html.escape(name)}</h2>" if name else "", *blocks]
    return "\n".join([*parts, f"<script>{_SCRIPT}</script>"])


def paragraph(text: str) -> str:
    """Return a line of text as a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def code_block(text: str) -> str:
    """Text as it stands, cut to `SHOWN_CHARS`."""
    return f"<pre>{html.escape(text[:SHOWN_CHARS])}</pre>"


def table(rows: Rows, *, full: bool = False) -> str:
    """Rows as a table. A `full` one sorts by a click on a heading and has a filter."""
    if not rows:
        return "<p class=quiet>(nothing)</p>"
    names = list(rows[0])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = ("".join(_cell(row.get(name)) for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<table{' class=full' if full else ''}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "<td data-value=''></td>"
    if isinstance(value, Code):
        words = f"{value.count(chr(10)) + 1} lines" if value else ""
        return (
            f"<td><details><summary>{words}</summary>{code_block(value)}</details></td>"
            if value
            else "<td></td>"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        return f"<td class=number data-value='{value}'>{shown}</td>"
    return f"<td>{html.escape(str(value))}</td>"
