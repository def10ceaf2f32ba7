"""Run kernels under the Triton interpreter against their references; a script, so that torch stays out
of the process that collects the tests.

Reads a JSON list of `{"reference": text, "kernels": [text, ...]}` from stdin and prints, as JSON, for each
kernel `correct`, `wrong` or `raised NAME`, and how often it launched a kernel of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402
from triton.runtime.interpreter import GridExecutor  # noqa: E402

launches = 0
run_grid = GridExecutor.__call__


def counted(self, *args, **kwargs):
    global launches
    launches += 1
    return run_grid(self, *args, **kwargs)


def module_of(source, folder, name):
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(make_model, reference, seed):
    torch.manual_seed(seed)
    model = make_model(*reference.get_init_inputs())
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        return model(*reference.get_inputs())


def outcome(source, reference, folder, name):
    try:
        module = module_of(source, folder, name)
        got = [outputs(module.ModelNew, reference, seed) for seed in (0, 10)]
    except Exception as error:
        return f"raised {type(error).__name__}"
    for seed, candidate in zip((0, 10), got, strict=True):
        expected = outputs(reference.Model, reference, seed)
        same_kind = candidate is not None and (candidate.shape, candidate.dtype) == (
            expected.shape,
            expected.dtype,
        )
        if not same_kind or not torch.allclose(candidate, expected, rtol=1e-4, atol=1e-4):
            return "wrong"
    return "correct"


def main():
    global launches
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    GridExecutor.__call__ = counted
    Autotuner.do_bench = property(lambda self: lambda call, quantiles: [0.0, 0.0, 0.0])
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for number, problem in enumerate(json.load(sys.stdin)):
            reference = module_of(problem["reference"], folder, f"reference_{number}")
            for position, source in enumerate(problem["kernels"]):
                launches = 0
                found = outcome(source, reference, folder, f"kernel_{number}_{position}")
                answers.append({"outcome": found, "launches": launches})
    print(json.dumps(answers))


main()
