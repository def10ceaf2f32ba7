"""All messages that a sandboxed process may send, strictly typed. Any other message is garbage on its
channel, and its failure."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

_Name = Annotated[StrictStr, Field(max_length=200)]
_Text = Annotated[StrictStr, Field(max_length=4000)]
_Line = Annotated[StrictInt, Field(ge=0, le=10_000_000)]
_Count = Annotated[StrictInt, Field(ge=0, le=1 << 62)]
_Turns = Annotated[tuple[tuple[_Line, _Count], ...], Field(max_length=1000)]
"""The most turns of each loop of kernels, by its line, where Triton interprets."""
_Source = Annotated[StrictStr, Field(max_length=1 << 20)]
_Flag = Annotated[StrictStr, Field(max_length=1000)]
_OUT_OF_MEMORY = "OutOfMemoryError"
"""Torch raises it when a GPU is full."""
_SAY_FULL = (
    "nvmlInit_v2_() INTERNAL ASSERT FAILED",  # torch queries NVML for the memory's users; no sandbox has it
    "CUDA error: out of memory",
    "[CUDA]: out of memory",  # of a launch by Triton
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Words of other errors for a full GPU."""

_HOST_IS_FULL = ("MemoryError", "DefaultCPUAllocator")
"""An error of Python or NumPy, and words of torch's, for a process beyond its memory limit."""


class Claim(BaseModel):
    """Base of all claims: unknown fields refused, nothing coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(Claim):
    """An exception in the candidate's code; `line` is its own, 0 if unknown. `by_compiler`: Triton's compiler
    raised it, or something it called."""

    failed: _Name
    error: _Name
    message: _Text
    line: _Line
    by_compiler: StrictBool

    @property
    def ran_out_of_memory(self) -> bool:
        """True if a GPU's memory was full."""
        return self.error == _OUT_OF_MEMORY or any(words in self.message for words in _SAY_FULL)

    @property
    def told(self) -> str:
        """The line that helps. A compiler says last what is wrong; other errors say it first, and then what
        may help."""
        if self.ran_out_of_memory and self.error != _OUT_OF_MEMORY:
            return f"{_OUT_OF_MEMORY}: the GPU lacks the memory that was asked for; check the shapes"
        is_host = not self.ran_out_of_memory
        if is_host and any(words in f"{self.error} {self.message}" for words in _HOST_IS_FULL):
            return "MemoryError: it asked for more memory than a candidate may have"
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return f"{self.error}: {lines[-1 if self.by_compiler else 0]}" if lines else self.error


class Loaded(Claim):
    """The candidate was imported and constructed; `unmatched` weights got no value of the reference's."""

    loaded: StrictBool
    features: tuple[_Name, ...] = Field(max_length=32)
    unmatched: tuple[_Name, ...] = Field(max_length=10_000)


class NotLoaded(Failure):
    """The candidate's module or its constructor raised."""

    features: tuple[_Name, ...] = Field(max_length=32)


class Kernel(Claim):
    """A JIT function by its place in the candidate's text, and the names it uses; or one of CUDA C++."""

    name: _Name
    line: _Line
    globals: dict[_Name, Any] = Field(max_length=1000)
    extension: _Name = ""
    """For a kernel in CUDA C++: the built library, in which `symbol` names the function."""
    symbol: _Text = ""


class Launch(Claim):
    """One launch: its kernel, its grid and its arguments."""

    launch: StrictInt = Field(ge=0, lt=1000)
    grid: tuple[StrictInt, ...] = Field(min_length=1, max_length=3)
    args: dict[_Name, Any] = Field(max_length=1000)
    options: dict[_Name, StrictInt] = Field(max_length=8)
    reaches: tuple[Any, ...] = Field(default=(), max_length=10_000)
    """Views to which addresses in its arguments point."""


class Ran(Claim):
    """A forward pass came to an end. What is traced is what was launched: the first is replayed, the second
    compiled."""

    kernels: tuple[Kernel, ...] = Field(max_length=1000)
    launches: tuple[Launch, ...] = Field(max_length=100_000)
    watched: tuple[_Name, ...] = Field(max_length=32)
    turns: _Turns = ()
    nesting: Any
    leaves: tuple[tuple[Any, ...], ...] = Field(max_length=10_000)
    trace: dict[_Name, Any] | None = None

    @model_validator(mode="after")
    def _launches_are_those_of_the_trace(self) -> Self:
        if self.trace is not None:
            operations = self.trace.get("operations")
            if not isinstance(operations, list) or not all(
                isinstance(operation, dict) for operation in operations
            ):
                raise ValueError("a trace without operations")
            traced = tuple(
                Launch.model_validate(operation) for operation in operations if "launch" in operation
            )
            if traced != self.launches:
                raise ValueError("the launches are not those of the trace")
        return self


class Raised(Failure):
    """A forward pass raised; what was launched before is known."""

    kernels: tuple[Kernel, ...] = Field(max_length=1000)
    launches: tuple[Launch, ...] = Field(max_length=100_000)
    watched: tuple[_Name, ...] = Field(max_length=32)
    turns: _Turns = ()


class Sources(Claim):
    """CUDA C++ that a candidate wants built; without `functions` it brings its own bindings."""

    cpp: tuple[_Source, ...] = Field(max_length=64)
    cuda: tuple[_Source, ...] = Field(max_length=64)
    functions: tuple[_Name, ...] | None = Field(max_length=64)
    cflags: tuple[_Flag, ...] = Field(max_length=64)
    cuda_cflags: tuple[_Flag, ...] = Field(max_length=64)
    implicit_headers: StrictBool


class BuildRequest(Claim):
    """A candidate's process waits for a build."""

    build: Sources


class Built(Claim):
    """A built extension. Its blob is the library, then the device code, with `products` of these kinds."""

    library_bytes: _Count
    image_bytes: _Count
    products: tuple[_Name, ...] = Field(max_length=8)


class BuildFailed(Claim):
    """The first error, and its line in a part of the sources (`cpp` or `cuda`), as far as they are known."""

    failed: _Text
    part: _Name
    line: _Line


_Kinds = Annotated[tuple[_Name, ...], Field(max_length=8)]
"""Kinds of products: see `compiled_products.py`."""


class Compiled(Claim):
    """Every launch compiled; `products` has the kinds of each."""

    compiled: _Count
    products: tuple[_Kinds, ...] = Field(max_length=100_000)

    @model_validator(mode="after")
    def _each_launch_has_its_products(self) -> Self:
        if len(self.products) != self.compiled:
            raise ValueError("a launch without the kinds of its products")
        return self


class NotCompiled(Claim):
    """The first fault of the compiler's that is the kernel's, and how many launches come before it.
    `exceeds_gpu`: a program takes more than the GPU has (`launch_limits.excess_of`)."""

    failed: _Text
    line: _Line
    place: _Count
    exceeds_gpu: StrictBool


class CompilerFault(Claim):
    """The compiler could not work, by a fault of the gym."""

    fault: _Text


class Mapped(Claim):
    """The memory for timed calls is at hand."""

    mapped: StrictBool


class Prepared(Claim):
    """A way to run a reference is compiled, and ran once."""

    prepared: StrictBool


class CallTimes(Claim):
    """Milliseconds of each call that was asked for."""

    times_ms: tuple[Annotated[StrictFloat, Field(gt=0, allow_inf_nan=False)], ...] = Field(max_length=10_000)


class Resources(Claim):
    """The resources of a multiprocessor that a launch takes (`kernel_resources.Resources`)."""

    registers: _Count
    spilled_bytes: _Count
    shared_bytes: _Count
    occupancy: Annotated[StrictFloat, Field(ge=0, le=1)]


class DeviceWork(Claim):
    """One operator or launch on a GPU (`cost_probe.DeviceWork`)."""

    name: _Name
    own: StrictBool
    device_ms: Annotated[StrictFloat, Field(ge=0, allow_inf_nan=False)]
    copies_only: StrictBool
    resources: Resources | None


class ReplayedOnDevice(Claim):
    """The trace ran to its end, several times, and was timed."""

    works: tuple[DeviceWork, ...] = Field(max_length=100_000)


class CountedWork(Claim):
    """The counts of one launch or operator (`work.Work`)."""

    name: _Name
    own: StrictBool
    bytes_accessed: _Count
    bytes_distinct: _Count
    operations: dict[_Name, _Count] = Field(max_length=100)
    padded: dict[_Name, _Count] = Field(max_length=100)
    copies_only: StrictBool
    is_unknown: StrictBool
    programs: _Count
    balance: Annotated[StrictFloat, Field(ge=0, le=1)]


class Played(Claim):
    """The trace ran to its end; `products` are the kinds of the products of its Triton kernels."""

    played: StrictBool
    products: tuple[_Name, ...] = Field(default=(), max_length=8)


class Replayed(Claim):
    """The trace ran to its end, and was counted."""

    works: tuple[CountedWork, ...] = Field(max_length=100_000)


class RehearsedPass(Claim):
    """A pass without data: its launches, by their places among those that differ, and the library's works."""

    distinct: tuple[Launch, ...] = Field(max_length=20_000)
    launches: tuple[_Count, ...] = Field(max_length=20_000)
    works: tuple[CountedWork, ...] = Field(max_length=20_000)
    turns: _Turns = ()

    @model_validator(mode="after")
    def _launches_are_there(self) -> Self:
        if any(place >= len(self.distinct) for place in self.launches):
            raise ValueError("a launch that is not there")
        return self


class Rehearsed(Claim):
    """Host code ran, at one size after the other; a failure stands for a size at which it raised."""

    kernels: tuple[Kernel, ...] = Field(max_length=1000)
    passes: tuple[RehearsedPass | Failure, ...] = Field(max_length=100)

    @model_validator(mode="after")
    def _kernels_are_there(self) -> Self:
        done = [tried for tried in self.passes if isinstance(tried, RehearsedPass)]
        if any(launch.launch >= len(self.kernels) for tried in done for launch in tried.distinct):
            raise ValueError("a launch of a kernel that is not there")
        return self


class Muted(Claim):
    """The trace ran to its end without its launches but for those that only move data, `moving` in number."""

    muted: StrictBool
    moving: _Count


class Rested(Claim):
    """The trace is forgotten; the next one may come."""

    rested: StrictBool


class Echoed(Claim):
    """True if the outputs needed what the launches made of the inputs (`input_swap.py`)."""

    needed: StrictBool
