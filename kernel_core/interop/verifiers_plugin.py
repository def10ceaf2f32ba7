"""Installed as the module `kernel_dojo`, by which verifiers finds the environment: `vf-eval kernel-dojo`."""

from kernel_core.interop.verifiers_environment import KernelEnvironment, KernelTaskset, load_environment

__all__ = ["KernelEnvironment", "KernelTaskset", "load_environment"]
