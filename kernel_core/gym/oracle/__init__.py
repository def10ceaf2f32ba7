"""The reference: a problem's module, its inputs, and its expected outputs."""
