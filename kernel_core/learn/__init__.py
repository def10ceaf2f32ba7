"""Reinforcement learning: batches, loss, updates, checkpoints, and the loop of a run."""
