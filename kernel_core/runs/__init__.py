"""Runs on disk: folder, stage record, policy of a run, settings."""
