"""Answer problems and run the answers in Triton's interpreter; a script: its switch is per process.

Reads a JSON list of problems' texts from a file or stdin. Prints a JSON list: `correct`, or what is wrong.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import tempfile
import types
import warnings
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
warnings.simplefilter("ignore")

import torch  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

from kernel_core.generator.answer import answer  # noqa: E402
from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter  # noqa: E402
from kernel_core.problems.source import parse_problem  # noqa: E402


def module_of(source: str, folder: str, name: str) -> types.ModuleType:
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def built(make_model, arguments):
    torch.manual_seed(0)
    match arguments:
        case [list() as positional, dict() as named]:
            model = make_model(*positional, **named)
        case _:
            model = make_model(*arguments)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=generator))
    return model


def outcome(source: str, folder: str) -> str:
    try:
        written = answer(parse_problem(source, id="test", suite="test"))
        reference, new = module_of(source, folder, "reference"), module_of(written.source, folder, "new")
        arguments = reference.get_init_inputs()
        models = [built(one, arguments) for one in (reference.Model, new.ModelNew)]
        torch.manual_seed(2)
        inputs = reference.get_inputs()
        with torch.no_grad():
            expected, results = (model(*copy.deepcopy(inputs)) for model in models)
        for right, result in zip(tree_flatten(expected)[0], tree_flatten(results)[0], strict=True):
            rtol = 1.6e-2 if right.dtype is torch.bfloat16 else 1e-3  # the default of assert_close
            torch.testing.assert_close(result, right, rtol=rtol, atol=1e-4)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:400]
    return f"stays with PyTorch: {written.reasons}" if written.reasons else "correct"


def main() -> None:
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read()
    prepare_interpreter()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps([outcome(source, folder) for source in json.loads(text)]))


if __name__ == "__main__":
    main()
