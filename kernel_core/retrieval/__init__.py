"""Retrieval: `embed` turns references into vectors, `index` seals them, `search` finds kernels by them."""
