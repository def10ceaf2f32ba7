"""Draws problems as graphs over the table of operators: the kernels follow from the module."""
