"""Patches of Triton's interpreter, which runs kernels on a CPU."""
