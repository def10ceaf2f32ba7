"""Figures of a policy: scorecards, statistics, comparisons, winners, nightly history."""
