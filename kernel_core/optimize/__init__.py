"""Faster kernels for a user's own module: profile, problems, candidates, confirmed winners, whole model."""
