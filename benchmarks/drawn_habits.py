"""Share of drawn problems of `graphs` whose text shows each habit of an author.

    python benchmarks/drawn_habits.py [--count 2000] [--seed 0]

Habits are found in the text by a pattern each, so the table shows what a reader meets.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence

from kernel_core.generator.draw.problems import drawn

_DOC = r"(?:\"\"\"|''')"
HABITS = {
    "no docstring": rf"\A(?!.*{_DOC})",
    "docstring of the class": rf"class Model\(nn\.Module\):\n\s+{_DOC}",
    "class docstring of several lines": rf"class Model\(nn\.Module\):\n\s+{_DOC}[^\"']*\n[^\"']*{_DOC}",
    "docstring of __init__": rf"def __init__\([^\n]*\n\s+{_DOC}",
    "docstring of forward": rf"def forward\([^\n]*\n\s+{_DOC}",
    "Args: with types": r"\n\s+Args:\n\s+\w+ \([\w.]+\): ",
    "Returns: with a shape": r"\n\s+Returns:\n\s+torch\.Tensor: [^\n]*of shape \(",
    "input shapes in a docstring": r"of shape \(",
    "Parameters of numpy's style": r"\n\s+Parameters\n\s+-+",
    ":param of Sphinx": r":param \w+:",
    "list of arguments with dashes": r"\n\s+- \w+: ",
    "docstring in apostrophes": r"'''",
    "hints of forward's inputs": r"def forward\(self, \w+: ",
    "hint of forward's result": r"def forward\([^\n]*\) -> ",
    "hints of constructor arguments": r"def __init__\(self, \w+: (?:int|float)",
    "Tensor imported": r"from torch import Tensor",
    "super(Model, self)": r"super\(Model, self\)",
    "super()": r"super\(\)\.__init__",
    "no constructor": r"\A(?!.*def __init__)",
    "from torch import nn": r"from torch import nn",
    "import torch.nn.functional as F": r"import torch\.nn\.functional as F",
    "from torch.nn import functional": r"from torch\.nn import functional",
    "F imported and not used": r"\A(?=.* as F\n)(?!.*\bF\.)",
    "import math": r"import math",
    "comments in forward": r"def forward\((?:(?!\ndef ).)*?\n\s+# ",
    "numbered comments": r"\n\s+# \d\. ",
    "comments behind a statement of forward": r"def forward\((?:(?!\ndef ).)*?\)  # ",
    "comments behind constants": r"\n\w+ = [^\n]+  # ",
    "comment above the constants": r"\n# \w[^\n]*\n\w+(?:, \w+)* = ",
    "constants before the class": r"\n\w+ = \d[^\n]*\n(?:\w[^\n]*\n|\n)*\n?class ",
    "constants in capitals": r"\n[A-Z_]{2,} = \d",
    "constants in small letters": r"\n[a-z_]{2,} = \d",
    "computed constants": r"\n\w+ = \d+ ?(?:\*|<<|\*\*) ?\d+",
    "several constants on a line": r"\n\w+, \w+[\w, ]* = \d",
    "tuple of sizes": r"\n\w+ = \(\d[^\n]*\)",
    "unpacked tuple": r"\(\*?(?:\w+, )*\*\w+\)",
    "sizes assigned in get_inputs": r"def get_inputs\(\):\n\s+\w+ = \d+\n",
    "numbers in get_inputs": r"def get_inputs\(\):(?:(?!\ndef ).)*torch\.rand\w*\(\(?\[?\d+, \d+",
    "numbers and names mixed": r"torch\.randn?\(\(?\[?(?:[a-zA-Z_]+, \d+|\d+, [a-zA-Z_]+)",
    "shape in a tuple": r"torch\.randn?\(\(\w",
    "shape in a list": r"torch\.randn?\(\[\w",
    "get_inputs with variables": r"def get_inputs\(\):\n(?:\s+\w+ = [^\n]+\n)*\s+\w+ = torch\.",
    "get_inputs over several lines": r"return \[\n",
    "rand": r"torch\.rand\(",
    "randn": r"torch\.randn\(",
    "randint": r"torch\.randint\(",
    "range of an input": r"torch\.randn?\([^\n]*\)+ [*+-] ",
    "get_init_inputs with names": r"def get_init_inputs\(\):\n\s+return \[[a-zA-Z_]",
    "get_init_inputs with numbers": r"def get_init_inputs\(\):\n\s+return \[-?\d",
    "get_init_inputs with keywords": r"return \[\[\], \{[\"']",
    "get_init_inputs with empty keywords": r"return \[\[\], \{\}\]",
    "get_init_inputs empty": r"def get_init_inputs\(\):\n\s+return \[\]",
    "defaults of the constructor": r"def __init__\(self,[^\n]*=",
    "constructor reads constants": r"def __init__\(self\).*nn\.\w+\([^\n)]*(?<=[( ])[A-Za-z_]{2,}[,)]",
    "attributes that are numbers": r"self\.\w+ = -?\d",
    "attributes from arguments": r"self\.(\w+) = \1\n",
    "attributes read in forward": r"def forward\((?:(?!\ndef ).)*self\.\w+(?![\w(.])",
    "helper method": r"class Model.*\n\s+def (?!__init__|forward)\w+\(self",
    "function beside the class": r"\ndef (?!get_inputs|get_init_inputs)\w+\(",
    "second class": r"\nclass (?!Model)\w+\(nn\.Module\)",
    "forward of one expression": r"def forward\([^\n]*\n(?:\s+(?:\"\"\"|''').*?(?:\"\"\"|''')\n)?\s+return ",
    "name for a residual": r"\n\s+(?:residual|identity|shortcut|skip|x0|res) = \w+\n",
    "reassigned name": r"\n\s+(\w+) = [^\n]*\b\1\b[^\n]*\n(?:\s+#[^\n]*\n|\n)*\s+\1 = [^\n]*\b\1\b",
    "strings in apostrophes": r"[(=\[{ ]'[a-z]",
    "strings in quotes": r'[(=\[{ ]"[a-z]',
    "indented by two": r"\n  def forward",
    "odd sizes": r"\b(?:3|5|7|11|13|17|31|33|63|65|97|127|129|255|257)\b",
}  # fmt: skip
"""Patterns by habit."""


def counted(count: int, seed: int) -> Counter[str]:
    """Return how many of `count` drawn texts show each habit."""
    counts: Counter[str] = Counter()
    compiled = {name: re.compile(pattern, re.S) for name, pattern in HABITS.items()}
    number = texts = 0
    while texts < count:
        draft = drawn(random.Random(f"habits {seed} {number}"))
        number += 1
        if draft is None:
            continue
        texts += 1
        counts.update(name for name, pattern in compiled.items() if pattern.search(draft.problem.source))
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    counts = counted(given.count, given.seed)
    for name in HABITS:
        print(f"{100 * counts[name] / given.count:5.1f} %  {name}")


if __name__ == "__main__":
    main()
