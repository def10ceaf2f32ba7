"""The version of the judge's meaning: part of the name under which a verdict is kept."""

GYM_VERSION = "59"
"""Raised whenever a change could give a candidate another verdict or another predicted speed."""
