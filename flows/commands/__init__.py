"""What each `dojo` command does."""
