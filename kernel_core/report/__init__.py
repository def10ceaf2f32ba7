"""Pages that a person reads about a run."""
