"""The sandbox of a child process: limits, Landlock, namespaces, and the server that forks it."""
