"""The process that runs the candidate's host code."""
