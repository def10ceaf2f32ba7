"""Requests to the judge, their results, and the version of its rules."""
