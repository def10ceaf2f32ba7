"""The root that forks every process, and the main loops of judges and their children."""
