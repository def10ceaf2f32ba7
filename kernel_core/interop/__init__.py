"""Other projects on our judge: trainers (TRL, verifiers), and formats (KernelBench, flashinfer-bench)."""
