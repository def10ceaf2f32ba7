"""The judge: the only place that decides whether a kernel is honest, correct and fast."""
