"""Predicted times and shares of work, by counted bytes and operations."""
