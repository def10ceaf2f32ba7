"""The record of a pass leaves out operators whose results nothing reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernel_core.gym.untrusted.candidate.trace_recorder import Recorder


def _recorded(work: Any, *inputs: torch.Tensor) -> list[str]:
    recorder = Recorder(lambda launch: None)
    recorder.begin(list(inputs))
    with torch.no_grad(), recorder:
        output = work(*inputs)
    recorder.outputs([output])
    return [one["op"].removeprefix("aten::") for one in recorder.operations if "op" in one]


def _read_by_host_code(x: torch.Tensor) -> torch.Tensor:
    lengths = (x > 0).sum(1).cumsum(0)
    return x * float(lengths.tolist()[-1])


def _kept_for_the_output(x: torch.Tensor) -> torch.Tensor:
    return x.exp().cumsum(0)


def _written_to_an_input(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return torch.zeros(3)


def _written_to_what_is_read(x: torch.Tensor) -> torch.Tensor:
    found = x.exp()
    found[0].copy_(x.sin()[0])
    return found


@pytest.mark.parametrize(
    ("work", "kept"),
    [
        (_read_by_host_code, ["mul"]),
        (_kept_for_the_output, ["exp", "cumsum"]),
        (_written_to_an_input, ["add_", "zeros"]),
        (_written_to_what_is_read, ["exp", "sin", "copy_"]),
    ],
)
def test_only_what_outputs_or_inputs_need_is_kept(work: Any, kept: list[str]) -> None:
    assert _recorded(work, torch.randn(4, 5)) == kept


def test_later_random_numbers_stay_as_they_are() -> None:
    def draws_twice(x: torch.Tensor) -> torch.Tensor:
        torch.rand_like(x)
        return x + torch.rand_like(x)

    assert _recorded(draws_twice, torch.randn(4)).count("rand_like") == 2
