"""Tolerances of outputs, and their comparison."""
