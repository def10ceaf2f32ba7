"""Writes Triton kernels for any module: graph of values, table of operators, fusion, schedules, answer."""
