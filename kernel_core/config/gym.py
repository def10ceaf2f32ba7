"""Settings of the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_core.config.base import Config
from kernel_core.records import Baseline, Tolerance


class GymConfig(Config):
    """The judge."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="Where candidates run.")
    workers: int = Field(
        2, ge=1, description="Judge processes, on a cluster of each node; on CUDA one a GPU, at most so many."
    )
    cluster: Literal["local", "ray"] = Field(
        "local", description="Judges on this machine, or on every node of a Ray cluster."
    )
    ray_address: str = Field(
        "auto",
        description="The cluster's address, as in `ray.init`; `auto`: RAY_ADDRESS, or a node on this host.",
    )
    rules: Literal["dojo", "kernelbench"] = Field(
        "dojo",
        description="The rules that decide; KernelBench's check no honesty and are for comparison only.",
    )
    in_flight: int = Field(
        12, ge=1, description="On CUDA, candidates in work at once on each GPU; most of them are compiling."
    )
    warm_runners: int = Field(
        8, ge=1, description="On CUDA, processes that wait beside each GPU with their context up."
    )
    baseline: Baseline = Field(
        "fair",
        description="On CUDA, the denominator of a speed-up: eager or torch.compile, with TF32 products off "
        "or on (`_tf32`); `fair` is the fastest of those at the candidate's precision or higher.",
    )
    compile_mode: Literal["default", "max-autotune"] = Field(
        "default", description="Mode of torch.compile for baselines."
    )
    tolerance: Tolerance = Field(
        "measured",
        description="Error bound of a correct output: `field` as KernelBench's, `measured` errors of honest "
        "arithmetic with TF32 products, `strict` without these.",
    )
    retime_at: tuple[float, ...] = Field(
        (1.0, 1.2), description="Speed-ups that matter: a kernel too near to one to tell is timed longer."
    )
    trials: int = Field(3, ge=1, description="Input draws that must all pass.")
    deadline_s: float = Field(
        20.0,
        gt=0,
        description="Seconds after which a candidate is killed; waits for a processor, and compilation in "
        "the middle of a pass, do not count, up to three times as much.",
    )
    memory_mb: int = Field(4096, ge=256, description="Memory a candidate may use beyond the warm runner's.")
    sandbox: Literal["require", "best-effort"] = Field(
        "best-effort", description="Whether a missing isolation feature of the kernel is an error or a note."
    )
    compile_gate: bool = Field(True, description="Compile every launched kernel for the target GPU.")
    predict_gpu: Literal["H200", "H100", "A100", "L4"] = Field("H200", description="GPU of predicted times.")
