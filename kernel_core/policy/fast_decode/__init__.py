"""Decoding with fixed shapes and fused kernels, replayed as CUDA graphs."""
