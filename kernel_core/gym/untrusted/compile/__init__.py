"""The processes that compile kernels of a candidate, in Triton or CUDA C++."""
