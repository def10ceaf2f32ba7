"""File of a harvested problem: its text with origin and licence, and its row of the manifest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from kernel_core.harvest.candidates import HarvestCandidate
from kernel_core.harvest.packages import Package
from kernel_core.harvest.problem_text import Body, tail_of
from kernel_core.problems.source import parse_problem
from kernel_core.records import Constant, Problem, Record

HELD_OUT_PERCENT = 17
"""Share of definitions that training never sees, by a hash of their qualified name."""
_KINDS = {
    "loss": r"loss|criterion|dice|divergence|_div\b|distance|error|similarity|entropy|penalty|score",
    "attention": r"attn|attention",
    "norm": r"norm|grn\b",
    "pooling": r"pool",
    "activation": r"gelu|relu|swish|silu|mish|sigmoid|tanh|softmax|activation|\bact\b"
    r"|snake|glu\b|softplus|elu\b",
    "embedding": r"embed|rope|rotary|position|encoding",
    "convolution": r"conv|downsample|upsample|patch|stem|bottleneck|residual|resblock|resnet"
    r"|inverted|fusedmb",
    "mlp": r"mlp|ffn|feed_?forward|linear|intermediate|dense|proj|head|classifier|expert",
    "image": r"kornia|transforms|image|blur|filter|color|colour",
    "graph": r"torch_geometric",
    "math": r"e3nn|\.math\.|geometry|quaternion|rotation|box",
}

Kind = Literal["class", "function", "composition"]


class Harvested(Record):
    """Row of the manifest: one problem, its origin and licence."""

    file: str
    """Below the output folder."""
    split: Literal["train", "held_out"]
    form: Kind
    kind: str
    """Kind of computation, as far as the name tells."""
    package: str
    version: str
    licence: str
    qualified_names: tuple[str, ...]
    copyright: tuple[str, ...] = ()


class Traced(Record):
    """Definition with the results of its passed trials."""

    qualified_name: str
    keeps_shape: bool
    """True if the output is as large as the one input, so that another module may follow."""
    takes_first: bool
    inputs: tuple[str, ...]
    init: tuple[str, ...]
    small: dict[str, Constant]
    large: tuple[dict[str, Constant], ...]


def traced(candidate: HarvestCandidate, request: Mapping[str, Any], answer: Mapping[str, Any]) -> Traced:
    """Return a caged process's answer as a record."""
    trial = request["trials"][answer["trial"]]
    return Traced(
        qualified_name=candidate.qualified_name,
        keeps_shape=answer["keeps_shape"],
        takes_first=answer["takes_first"],
        inputs=tuple(answer["inputs"]),
        init=tuple(trial["init"]),
        small=trial["small"],
        large=tuple(answer["large"]),
    )


def kind_of(qualified_name: str) -> str:
    """Return a word for the computation, from the definition's name, then from its module's."""
    own = qualified_name.rpartition(".")[2]
    for text in (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", own).lower(), own.lower(), qualified_name.lower()):
        for kind, pattern in _KINDS.items():
            if re.search(pattern, text):
                return kind
    return "other"


def split_of(qualified_name: str) -> Literal["train", "held_out"]:
    """Return the split of a definition, which holds for all problems made of it."""
    digest = hashlib.blake2b(qualified_name.encode(), digest_size=4).digest()
    return "held_out" if int.from_bytes(digest, "big") % 100 < HELD_OUT_PERCENT else "train"


def problems_of(
    package: Package,
    names: Sequence[str],
    body: Body,
    trace: Traced,
    form: Kind,
    copyright_lines: Sequence[str],
) -> Iterator[tuple[Harvested, Problem, str]]:
    """Row, problem and file text, one for each of the large sizes."""
    own = "_".join(name.rpartition(".")[2] for name in names)
    kind = "composition" if form == "composition" else kind_of(names[0])
    source = body.takes_first if trace.takes_first else body.source
    for large in trace.large:
        tail = tail_of(large, trace.inputs, trace.init)
        digest = hashlib.sha256(f"{names}{source}{tail}".encode()).hexdigest()[:8]
        split = split_of(names[0])
        file = f"{split}/{package.name}_{own}_{digest}.py"
        row = Harvested(
            file=file,
            split=split,
            form=form,
            kind=kind,
            package=package.name,
            version=package.version,
            licence=package.licence,
            qualified_names=tuple(names),
            copyright=tuple(copyright_lines),
        )
        text = f"{_header(row, trace.small, large)}{source}\n\n{tail}"
        problem = parse_problem(text, id=f"harvest/{file.removesuffix('.py')}", suite="harvest")
        yield row, problem, text


def _header(row: Harvested, small: Mapping[str, Constant], large: Mapping[str, Constant]) -> str:
    sizes = ", ".join(f"{name}={small[name]!r}" for name in large)
    cpu = f"# cpu: {sizes}\n" if sizes else ""
    holders = "".join(f"# {line}\n" for line in row.copyright)
    origin = (
        f"# From {', '.join(row.qualified_names)} ({row.package} {row.version}, {row.licence}), adapted.\n"
    )
    return (
        f"{cpu}# family: harvested_{row.kind}\n# tags: harvested, {row.package}, {row.form}\n"
        f"{origin}{holders}"
    )
