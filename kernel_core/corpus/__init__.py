"""Ingest: corpus sources into one clean, deduplicated, decontaminated snapshot of exemplars.

In the order a row travels:

- `registry`: which sources, pinned where.
- `rows`: stream and check columns.
- `layouts`: published columns to `Exemplar`.
- `normalise`: what a reference computes, as a hash.
- `deduplicate`, `decontaminate`, and `snapshot`: all of it, resumable.
"""
