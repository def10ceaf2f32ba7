"""Supervised training before RL: rows from a corpus or from chat files, and the updates."""
