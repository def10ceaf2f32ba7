"""Faster kernels for a user's own module: profile, problems, candidates, confirmed winners, whole model."""

MOST_PARTS = 12
"""Parts of a module that are tried where no setting says how many."""
