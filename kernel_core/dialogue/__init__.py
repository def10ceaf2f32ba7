"""A conversation with a policy: prompt, answer, candidate, feedback, next turn."""
