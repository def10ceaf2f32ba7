"""Kernels for modules of any source: the module stays as it is, and some of its layers become kernels."""
