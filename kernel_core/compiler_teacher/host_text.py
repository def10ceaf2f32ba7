"""The compiled module's `call` as a forward function: what it allocates, multiplies and launches."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from kernel_core.compiler_teacher.inductor_code import CompiledKernel, InductorCode
from kernel_core.compiler_teacher.kernel_text import WrittenKernel, signature, written_kernel
from kernel_core.compiler_teacher.names import argument_name, title_of, unique
from kernel_core.compiler_teacher.origins import Inputs, Tensor, is_contiguous
from kernel_core.compiler_teacher.refusal import CannotTeach

_PRODUCTS = {"mm": 2, "bmm": 2, "addmm": 3, "baddbmm": 3}
"""Products of torch by name and number of tensors."""


@dataclass
class Host:
    """Lines of the forward function so far."""

    code: InductorCode
    inputs: Inputs
    sizes: dict[str, str] = field(default_factory=dict)
    """Expression of a size by Inductor's name."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    """Allocations that nothing has used yet."""
    lines: list[str] = field(default_factory=list)
    kernels: dict[str, WrittenKernel] = field(default_factory=dict)
    compiled: dict[str, CompiledKernel] = field(default_factory=dict)
    device: str = ""

    def run(self) -> None:
        """Go through the statements of `call`."""
        for statement in self.code.statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        text = ast.unparse(node)
        if isinstance(node, ast.Delete) or re.match(
            r"args\.clear|(raw_)?stream|assert_|arg\d+_1, |\(?arg\d+_1,\)? =|arg\d+_1_size =", text
        ):
            return
        if isinstance(node, ast.Return):
            self._returned(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._assigned(node.targets[0].id, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._called(node.value)
        else:
            raise CannotTeach(f"a statement of the kind {type(node).__name__}")

    def _returned(self, node: ast.Return) -> None:
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != 1:
            raise CannotTeach("several outputs")
        self.lines.append(f"return {self.tensor(node.value.elts[0]).text}")

    def _assigned(self, name: str, value: ast.expr) -> None:
        text = ast.unparse(value)
        if text in self.inputs.sizes:
            self.sizes[name] = self.inputs.sizes[text]
        elif read := re.fullmatch(r"(arg\d+_1)_size\[(\d+)\]", text):  # the form of torch 2.11
            self.sizes[name] = self.inputs.tensors[read[1]].shape[int(read[2])]
        elif not isinstance(value, ast.Call):
            if text in self.tensors or text in self.inputs.tensors:
                self.tensors[name] = self.tensor(value)
            elif re.fullmatch(r"[\w\s*+/()-]+", text) and not re.search(r"buf\d", text):
                self.sizes[name] = self.size(value)
            else:
                raise CannotTeach("a fallback of the compiler's")
        elif text.startswith("empty_strided_cpu("):
            self._allocated(name, value)
        elif text.startswith("reinterpret_tensor("):
            self.tensors[name] = self.tensor(value)
        elif text.startswith("torch.ops.aten.convolution.default("):
            self._convolution(name, value)
        else:
            raise CannotTeach(f"fallback {ast.unparse(value.func)}")

    def _allocated(self, name: str, call: ast.Call) -> None:
        shape, strides = self._tuple(call.args[0]), self._tuple(call.args[1])
        dtype = ast.unparse(call.args[2])
        taught = f"h{len([one for one in self.tensors if one.startswith('buf')])}"
        self.tensors[name] = Tensor(taught, taught, shape, strides)
        device = f"device={self._device()}, dtype={dtype}"
        if self._contiguous(shape, strides):
            self.waiting[taught] = f"{taught} = torch.empty({_tupled(shape)}, {device})"
        else:
            self.waiting[taught] = (
                f"{taught} = torch.empty_strided({_tupled(shape)}, {_tupled(strides)}, {device})"
            )

    def _device(self) -> str:
        arguments = [one.text for one in self.inputs.tensors.values()]
        return (
            next((one for one in arguments if "." not in one), arguments[0] if arguments else "'cuda'")
            + ".device"
        )

    def _convolution(self, name: str, call: ast.Call) -> None:
        """A convolution in torch's words, made contiguous as kernels behind it expect."""
        tensors = [self.tensor(one).text for one in call.args[:3] if ast.unparse(one) != "None"]
        if len(tensors) == 3:
            tensors[2] = f"bias={tensors[2]}"
        stride, padding, dilation, moved = (
            tuple(self.size(part) for part in getattr(one, "elts", ()))
            for one in (*call.args[3:6], call.args[7])
        )
        transposed = ast.unparse(call.args[6]) == "True"
        options = [("stride", stride, "1"), ("padding", padding, "0"), ("output_padding", moved, "0")]
        options += [("groups", (self.size(call.args[8]),), "1"), ("dilation", dilation, "1")]
        for option, values, usual in options:
            if any(value != usual for value in values):
                tensors.append(f"{option}={values[0] if len(set(values)) == 1 else _tupled(values)}")
        rank = len(stride)
        function = f"torch.nn.functional.conv{'_transpose' if transposed else ''}{rank}d"
        taught = f"h{len([one for one in self.tensors if one.startswith('buf')])}"
        self.lines.append(signature(f"{taught} = {function}", tensors, ".contiguous()"))
        shape = tuple(f"{taught}.shape[{position}]" for position in range(rank + 2))
        self.tensors[name] = Tensor(taught, taught, shape, ("contiguous",))

    def _called(self, call: ast.Call) -> None:
        function = ast.unparse(call.func)
        room, _, name = function.rpartition(".")
        if name == "run" and room in self.code.kernels:
            self._launched(self.code.kernels[room], call)
        elif room == "extern_kernels" and name in _PRODUCTS:
            self._multiplied(name, call)
        else:
            raise CannotTeach(f"fallback {function}")

    def _multiplied(self, name: str, call: ast.Call) -> None:
        given = {one.arg: one.value for one in call.keywords}
        if any(ast.unparse(given.get(one, ast.Constant(1))) != "1" for one in ("alpha", "beta")):
            raise CannotTeach("a scaled product")
        factors = [self.tensor(one).text for one in call.args]
        target = self.tensor(given["out"], used=False)
        if not self._contiguous(target.shape, target.strides) or target.text not in self.waiting:
            self._use(target.text)
            factors.append(f"out={target.text}")
            self.lines.append(signature(f"torch.{name}", factors, ""))
            return
        del self.waiting[target.text]
        self.lines.append(signature(f"{target.text} = torch.{name}", factors, ""))

    def _launched(self, kernel: CompiledKernel, call: ast.Call) -> None:
        given = [one.value if isinstance(one, ast.Starred) else one for one in call.args]
        texts: list[str] = []
        names: list[str] = []
        for argument, value in zip(kernel.arguments, given, strict=False):
            if kernel.dtypes[argument].startswith("*"):
                tensor = self.tensor(value)
                texts.append(_base(tensor.text))
                stem = "out" if argument.startswith("out_ptr") else tensor.stem
                names.append(unique(f"{stem}_ptr", names))
            else:
                texts.append(self.size(value))
                names.append(unique(argument_name(argument, texts[-1]), names))
        if len(texts) != len(kernel.arguments):
            raise CannotTeach("another number of arguments")
        if kernel.name not in self.kernels:
            title = title_of(kernel.name, [one.name for one in self.kernels.values()])
            self.kernels[kernel.name] = written_kernel(kernel, title, names)
            self.compiled[kernel.name] = kernel
        written = self.kernels[kernel.name]
        numels = {"xnumel": "1"} | dict(zip(kernel.arguments, texts, strict=True))
        grid = [
            f"triton.cdiv({numels[f'{axis}numel']}, {written.blocks.get(written.block_of[axis], 1)})"
            if written.blocks.get(written.block_of[axis], 1) > 1
            else numels[f"{axis}numel"]
            for axis in written.axes
        ]
        kept = [text for text, used in zip(texts, written.used, strict=True) if used]
        kept += [f"{block}={size}" for block, size in written.blocks.items()]
        kept += [f"num_warps={written.num_warps}"]
        self.lines.append(signature(f"{written.name}[({', '.join(grid)},)]", kept, ""))

    def size(self, node: ast.expr) -> str:
        """A size as the forward function writes it."""
        replaced = _Sizes(self.sizes).visit(ast.parse(ast.unparse(node), mode="eval").body)
        return ast.unparse(replaced)

    def _tuple(self, node: ast.expr) -> tuple[str, ...]:
        assert isinstance(node, ast.Tuple)
        return tuple(self.size(one) for one in node.elts)

    def tensor(self, node: ast.expr, used: bool = True) -> Tensor:
        """What an expression over tensors is in the forward function."""
        if isinstance(node, ast.Name):
            found = self.tensors.get(node.id) or self.inputs.tensors.get(node.id)
            if found is None:
                raise CannotTeach("a constant of the compiler's")
            if used:
                self._use(found.text)
            return found
        assert isinstance(node, ast.Call)
        if ast.unparse(node.func) != "reinterpret_tensor":
            raise CannotTeach(f"fallback {ast.unparse(node.func)}")
        base = self.tensor(node.args[0])
        shape, strides = self._tuple(node.args[1]), self._tuple(node.args[2])
        offset = self.size(node.args[3])
        return Tensor(self._view(base, shape, strides, offset), base.stem, shape, strides)

    def _use(self, text: str) -> None:
        if text in self.waiting:
            self.lines.append(self.waiting.pop(text))

    def _view(self, base: Tensor, shape: tuple[str, ...], strides: tuple[str, ...], offset: str) -> str:
        """A view in torch's words where there are some, else `as_strided`."""
        name = _base(base.text)
        dense = base.strides == ("contiguous",) or self._contiguous(base.shape, base.strides)
        numbers = self._numbers(shape)
        if offset == "0" and dense and numbers is not None:
            whole = self._numbers(base.shape)
            complete = whole is None or _product(whole) == _product(numbers)
            if complete and self._contiguous(shape, strides):
                return name if numbers == whole else f"{name}.view({', '.join(shape)})"
            if complete and len(shape) >= 2:
                swapped = (*shape[:-2], shape[-1], shape[-2])
                if self._contiguous(swapped, (*strides[:-2], strides[-1], strides[-2])):
                    viewed = name if self._numbers(swapped) == whole else f"{name}.view({', '.join(swapped)})"
                    return viewed + (".t()" if len(shape) == 2 else ".transpose(-1, -2)")
        tail = "" if offset == "0" else f", {offset}"
        return f"torch.as_strided({name}, {_tupled(shape)}, {_tupled(strides)}{tail})"

    def _contiguous(self, shape: tuple[str, ...], strides: tuple[str, ...]) -> bool:
        if strides == ("contiguous",):
            return True
        sizes, steps = self._numbers(shape), self._numbers(strides)
        return sizes is not None and steps is not None and is_contiguous(sizes, steps)

    def _numbers(self, texts: tuple[str, ...]) -> tuple[int, ...] | None:
        """Values at the problem's own sizes; None where one is only known when it runs."""
        if any(".shape[" in text for text in texts):
            return None
        return tuple(int(eval(text, {"__builtins__": {}}, dict(self.inputs.values))) for text in texts)


class _Sizes(ast.NodeTransformer):
    def __init__(self, sizes: dict[str, str]) -> None:
        self.sizes = sizes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.sizes:
            raise CannotTeach("a size that is only known when it runs")
        return ast.parse(self.sizes[node.id], mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`max(1, size)` is the size: none is empty."""
        if ast.unparse(node.func) != "max" or len(node.args) != 2 or ast.unparse(node.args[0]) != "1":
            raise CannotTeach("a size by a function")
        replaced: ast.expr = self.visit(node.args[1])
        return replaced


def _product(numbers: tuple[int, ...]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _tupled(parts: tuple[str, ...]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _base(text: str) -> str:
    """A tensor without views that leave its memory as it is: a kernel takes an address."""
    return re.sub(r"(\.view\([^()]*\)|\.t\(\)|\.transpose\(-1, -2\))+$", "", text)
