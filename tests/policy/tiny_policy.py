"""A policy that is small enough to be made in a test, and what samplers are asked."""

from kernel_core.config import PolicyConfig

CONFIG = PolicyConfig(hidden_size=32, num_layers=2, num_heads=2, vocab_size=330, max_context=512)
TEXTS = ["import triton\nimport triton.language as tl\n\n\nclass ModelNew:\n    pass\n"] * 3
PROMPTS = [[{"role": "user", "content": text}] for text in ("add", "softmax", "a sum over rows")]
SETTINGS = {"temperature": 1.0, "max_new_tokens": 24, "seed": 3}
