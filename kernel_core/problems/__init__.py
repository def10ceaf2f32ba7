"""Problems: references to beat, read from files (`load`) or drawn from a seed (`generate`).

Nothing here executes a problem or imports torch: a problem is text with a syntax tree.
"""
