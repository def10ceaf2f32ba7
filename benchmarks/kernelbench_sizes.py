"""Writes `data/kernelbench_sizes.txt`: digests of the size tuples that KernelBench's problems have.

KERNELBENCH_ROOT=CHECKOUT python benchmarks/kernelbench_sizes.py
"""

from __future__ import annotations

from kernel_core.problems.evaluation_sizes import SIZES_FILE, size_digests
from kernel_core.problems.load import KERNELBENCH_LEVELS, load_kernelbench

HEADER = """# Digests of sorted tuples of module-level sizes, of length 2 or more, in KernelBench's problems.
# Written by benchmarks/kernelbench_sizes.py. The generator of `modules` draws no such tuple.
"""


def main() -> None:
    digests = size_digests(load_kernelbench(KERNELBENCH_LEVELS))
    SIZES_FILE.write_text(HEADER + "".join(f"{digest}\n" for digest in digests), encoding="utf-8")
    print(f"{len(digests)} size tuples in {SIZES_FILE}")


if __name__ == "__main__":
    main()
