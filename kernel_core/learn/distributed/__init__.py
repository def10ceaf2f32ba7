"""One update shared by several processes."""
