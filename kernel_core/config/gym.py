"""Settings of the judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_core.config.base import Config
from kernel_core.records import Baseline, Tolerance


class GymConfig(Config):
    """The judge."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="Device of the judge.")
    workers: int = Field(
        2, ge=1, description="Judge processes, per node of a cluster; on CUDA one per GPU, at most this many."
    )
    cluster: Literal["local", "ray"] = Field(
        "local", description="Judge on this host, or on every node of a Ray cluster."
    )
    ray_address: str = Field(
        "auto",
        description="Address as in `ray.init`; `auto`: RAY_ADDRESS, or a node on this host.",
    )
    rules: Literal["dojo", "kernelbench"] = Field(
        "dojo",
        description="Rules of the verdict; `kernelbench` checks no honesty and is for comparison only.",
    )
    in_flight: int = Field(
        12, ge=1, description="On CUDA, concurrent candidates per GPU; most of them compile."
    )
    warm_runners: int = Field(8, ge=1, description="On CUDA, idle processes with an open context per GPU.")
    baseline: Baseline = Field(
        "fair",
        description="On CUDA, the denominator of a speed-up; `fair`: the fastest of equal precision.",
    )
    compile_mode: Literal["default", "max-autotune"] = Field(
        "default", description="Mode of torch.compile for baselines."
    )
    tolerance: Tolerance = Field(
        "measured",
        description="Error bound: KernelBench's, or that of honest arithmetic with and without TF32.",
    )
    retime_at: tuple[float, ...] = Field(
        (1.0, 1.2),
        description="Speed-up thresholds; a kernel is timed longer while its interval contains one.",
    )
    trials: int = Field(
        3,
        ge=1,
        description="Input draws, all of which must pass; one of them has one sign, and one is adversarial.",
    )
    deadline_s: float = Field(
        20.0,
        gt=0,
        description="Time limit of a candidate in seconds. Waiting for a CPU and compiling extend it, "
        "at most threefold.",
    )
    memory_mb: int = Field(
        4096, ge=256, description="Memory limit of a candidate in MB, beyond the warm process."
    )
    sandbox: Literal["require", "best-effort"] = Field(
        "best-effort",
        description="Missing kernel isolation features: error (`require`) or note (`best-effort`).",
    )
    compile_gate: bool = Field(True, description="Compile every launched kernel for the target GPU.")
    predict_gpu: Literal["H200", "H100", "A100", "L4"] = Field("H200", description="GPU of predicted times.")
