"""Measured times on a GPU, and the baselines that they are compared with."""
