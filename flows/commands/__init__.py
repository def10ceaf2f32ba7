"""Commands of `dojo`, one a module."""
