"""The decisions: one verdict for each candidate."""
