"""Rewards of turns: terms, presets, returns, advantages, rejection, curriculum."""
