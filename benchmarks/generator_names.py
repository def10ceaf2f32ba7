"""Claim: the generator's table has most operators of torch's own tests that a kernel can be written for.

    pip install expecttest
    python benchmarks/generator_names.py [--missing]

Works without a GPU, in a minute. Torch tests each operator on sample inputs (`op_db`). A name is `covered` if
the table makes values of torch's shapes and types for each float32 sample (int64 where there is no float32),
`partly` if for some, else `missing`. No kernel is run: `pytest tests/generator -m exhaustive` does that.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import torch
from machine import describe_machine
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.read import built, short_name

_NOT_KERNELS = (
    *(
        "linalg.",
        "fft.",
        "sparse.",
        "torch.ops.aten._",
        "signal.windows",
        "rand",
        "normal",
        "bernoulli",
        "multinomial",
    ),
    *(
        "empty",
        "new_empty",
        "stft",
        "istft",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "uniform",
        "svd",
    ),
    *(
        "cholesky",
        "lu",
        "qr",
        "pinverse",
        "geqrf",
        "ormqr",
        "triangular_solve",
        "polar",
        "view_as_",
        "complex",
        "jiterator",
    ),
)
"""Beginnings of names without a kernel of their own: random, linear algebra, complex numbers, sparse."""


def main() -> None:
    """The table's share, and with `--missing` the names without an entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--missing", action="store_true")
    arguments = parser.parse_args()
    names: dict[str, str] = {}
    for info in op_db:
        if not info.name.startswith(_NOT_KERNELS):
            outcome = _outcome(info)
            names[info.name] = max(names.get(info.name, ""), outcome) if outcome != "covered" else "covered"
    print(describe_machine())
    counts = Counter(names.values())
    print(f"{len(names)} names: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    if arguments.missing:
        for outcome in ("missing", "partly"):
            print(f"{outcome}: {' '.join(sorted(name for name, one in names.items() if one == outcome))}")


def _outcome(info: Any) -> str:
    dtypes = info.supported_dtypes("cpu")
    dtype = torch.float32 if torch.float32 in dtypes else torch.int64
    if dtype not in dtypes:
        return "other types"
    results = [_agrees(info, sample) for sample in list(info.sample_inputs("cpu", dtype))[:12]]
    if not results:
        return "no samples"
    return "covered" if all(results) else "partly" if any(results) else "missing"


def _agrees(info: Any, sample: Any) -> bool:
    def value(one: Any) -> Any:
        return make("leaf", (), one.shape, one.dtype, text="x") if isinstance(one, torch.Tensor) else one

    args, kwargs = tree_map(value, ((sample.input, *sample.args), dict(sample.kwargs)))
    try:
        wanted = info.op(sample.input, *sample.args, **sample.kwargs)
        name = info.name.rsplit(".", 1)[-1].strip("_")
        made = built(short_name(name), args, kwargs)
    except (Unsupported, TypeError, AttributeError, ValueError, KeyError, IndexError, RuntimeError):
        return False
    one, other = tree_flatten(made)[0], tree_flatten(wanted)[0]
    return len(one) == len(other) and all(
        isinstance(a, Value) and tuple(map(int, a.shape)) == tuple(b.shape) and a.dtype == b.dtype
        for a, b in zip(one, other, strict=True)
    )


if __name__ == "__main__":
    main()
