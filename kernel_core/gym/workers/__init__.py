"""The judge's side of a sandboxed child: questions, answers, payloads, and locks of a GPU."""
