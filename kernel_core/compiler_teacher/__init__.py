"""Kernels that `torch.compile` writes for a problem, rewritten into the form that is taught.

`capture` gets Inductor's code on a machine without a GPU; `written` makes a module with `ModelNew` of it.
Only kernels that the judge finds correct are taught.
"""
