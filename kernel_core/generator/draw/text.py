"""The text of a drawn problem in KernelBench's format, in an author's habits."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.generator.draw import prose
from kernel_core.generator.draw.body import Body, body_of
from kernel_core.generator.draw.habits import Habits
from kernel_core.generator.draw.makers import Places, constant_lines, inputs_function, member_sizes, places_of
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.records import Constant

_SECTIONS = ("# Sizes", "# Configuration", "# Hyperparameters", "# Test parameters", "# Problem size")
_NO_ARGUMENTS = (
    "  # No special initialization inputs needed",
    "  # no arguments",
    "  # nothing to initialize",
)


@dataclass(frozen=True)
class Written:
    """A problem's text and its sizes, as `Problem` has them."""

    source: str
    constants: dict[str, Constant]
    cpu_constants: dict[str, Constant]


@dataclass(frozen=True)
class Argument:
    """An argument of a constructor."""

    name: str
    hint: str
    given: str
    """Expression in `get_init_inputs`; empty if the default is taken."""
    default: str = ""


def _in_order(arguments: Sequence[Argument]) -> list[Argument]:
    """Return arguments of which none is left out before a given one, or has a default before one without."""
    ordered: list[Argument] = []
    for argument in reversed(arguments):
        if ordered and ordered[0].given and not argument.given:
            argument = replace(argument, given=argument.default)
        if ordered and not ordered[0].default:
            argument = replace(argument, default="")
        ordered.insert(0, argument)
    return ordered


def source_of(sketch: Sketch, results: Sequence[Tensor], habits: Habits | None = None) -> Written:
    """Return a problem's text and sizes. Other habits change its surface and leave its graph."""
    return _Text(sketch, results, habits or sketch.habits).written()


class _Text:
    """Writer of one problem."""

    def __init__(self, sketch: Sketch, results: Sequence[Tensor], habits: Habits) -> None:
        self.sketch, self.results, self.habits = sketch, results, habits
        self.rng = random.Random(f"{sketch.rng.random()}")
        self.body = body_of(sketch, results, habits, self.rng)
        self.used = self._names_in([*sketch.constructor])
        self.places = places_of(sketch, self.used, habits, self.rng)
        self.is_hard = habits.sizes == "small" and self.rng.random() < 0.7
        """Sizes are numbers in the constructor too."""
        spelled = {*self.places.spelled, *self.places.members}
        self.is_global = habits.arguments == "globals" and not spelled & {*self.used}
        """The constructor reads constants of the module."""
        self.arguments = self._arguments()

    def written(self) -> Written:
        """Return the text and its sizes."""
        habits, places = self.habits, self.places
        constants = constant_lines(self.sketch, places, habits, self.module_settings, self.rng)
        inner = [*self._part(), *self._model()]
        seed = self.rng.random()
        makers = self._makers("gpu", seed)
        sizes: dict[str, Constant] = {
            name: axis.gpu
            for name, axis in places.sizes.items()
            if name not in places.spelled and name not in places.local
        }
        cpu: dict[str, Constant] = {name: places.sizes[name].cpu for name in sizes}
        for position, name in enumerate(places.members):
            sizes[f"{places.tuple_name}[{position}]"] = sizes.pop(name)
            cpu[f"{places.tuple_name}[{position}]"] = cpu.pop(name)
        if places.spelled or places.local:
            for member, large, small in member_sizes("\n".join(makers), "\n".join(self._makers("cpu", seed))):
                sizes[member], cpu[member] = large, small
        if habits.settings == "module":
            values = {name: ast.literal_eval(value) for name, value in self.module_settings}
            sizes |= {name: value for name, value in values.items() if not isinstance(value, tuple)}
        return Written(self._joined(constants, inner, makers), sizes, cpu)

    # --- arguments of the constructor

    def _names_in(self, lines: Sequence[str]) -> list[str]:
        text = "\n".join(lines)
        return [name for name in self.sketch.sizes if re.search(rf"(?<![\w.]){name}\b(?! ?=)", text)]

    def _arguments(self) -> list[Argument]:
        names = [] if self.is_hard or self.is_global else list(self.used)
        if self.habits.kept and not names and self.sketch.sizes and not self.is_global:
            names = [self.rng.choice([*self.sketch.sizes])]
        made = [Argument(name.lower(), "int", name) for name in names if name not in self.places.local]
        if self.habits.arguments == "defaults":
            made = [
                Argument(size.name, size.hint, size.given, str(self.places.sizes[size.given].gpu))
                for size in made
            ]
        for name, value in self.given:
            usual = self.sketch.options.get(name, "")
            is_usual = self.habits.settings == "default" or value == usual
            given = "" if is_usual else name if self.habits.settings == "module" else value
            default = value if is_usual or self.habits.arguments == "defaults" else usual
            hint = "tuple" if value.startswith("(") else type(ast.literal_eval(value)).__name__
            made.append(Argument(name, hint, given, default))
        return _in_order(made)

    @property
    def given(self) -> list[tuple[str, str]]:
        """Settings that are arguments of the constructor, with their values."""
        is_given = self.habits.settings in ("argument", "default", "module")
        return [*self.sketch.settings.items()] if is_given else []

    @property
    def module_settings(self) -> list[tuple[str, str]]:
        """Settings that are constants of the module, with their values."""
        names = [argument.name for argument in self.arguments if argument.given == argument.name]
        return [(name, value) for name, value in self.given if name in names]

    def _signature(self, arguments: Sequence[Argument]) -> str:
        is_typed = self.habits.hints in ("full", "init", "Tensor")
        parts = ["self"]
        for argument in arguments:
            text = f"{argument.name}: {argument.hint}" if is_typed else argument.name
            if argument.default:
                text += f" = {argument.default}" if is_typed else f"={argument.default}"
            parts.append(text)
        end = " -> None" if self.habits.hints == "full" and self.rng.random() < 0.3 else ""
        return f"def __init__({', '.join(parts)}){end}:"

    # --- classes

    def _constructor_lines(self, lines: Sequence[str]) -> list[str]:
        """Lines with the names of arguments, of constants or with numbers in place of sizes."""
        if self.is_global:
            return list(lines)
        if self.is_hard:
            return [self.places.text(line) for line in lines]
        named = {name: name.lower() for name in self.used}
        return [
            re.sub(r"\b[A-Za-z_]\w*\b", lambda match: named.get(match[0], match[0]), line) for line in lines
        ]

    def _part(self) -> list[str]:
        """A function or class that some lines of `forward` were moved to."""
        body, habits = self.body, self.habits
        if body.form == "function":
            typed = f"{body.argument}: torch.Tensor" if habits.hints != "none" else body.argument
            return [f"def {body.name}({typed}):", *_indented(body.part), "", ""]
        if body.form != "class":
            return []
        names = [] if self.is_hard or self.is_global else self._names_in(body.owned)
        arguments = [Argument(name.lower(), "int", "") for name in names]
        start = f"super({body.name}, self).__init__()" if habits.long_super else "super().__init__()"
        return [
            f"class {body.name}(nn.Module):", f"    {self._signature(arguments)}",
            *_indented([start, *self._with_numbers(self._constructor_lines(body.owned))], 8), "",
            f"    def forward(self, {body.argument}):", *_indented(body.part, 8), "", "",
        ]  # fmt: skip

    def _model(self) -> list[str]:
        habits, body, arguments = self.habits, self.body, self.arguments
        given = [(argument.name, argument.hint) for argument in arguments]
        lines = ["class Model(nn.Module):"]
        if habits.class_doc != "none":
            text = prose.class_doc(self.sketch, habits, self.rng, given)
            lines += [*_indented(self._docstring(text)), ""]
        inner = self._constructor()
        if inner or arguments or habits.long_super or self.rng.random() < 0.3:
            start = "super(Model, self).__init__()" if habits.long_super else "super().__init__()"
            lines.append(f"    {self._signature(arguments)}")
            if habits.init_doc != "none":
                lines += _indented(self._docstring(prose.init_doc(self.sketch, habits, self.rng, given)), 8)
            lines += [*_indented([start, *inner], 8), ""]
        is_before = self.rng.random() < 0.5
        if body.form == "method" and is_before:
            lines += [*self._method(), ""]
        lines += [f"    {self._forward_head()}"]
        if habits.forward_doc != "none":
            lines += _indented(self._docstring(self._forward_doc()), 8)
        lines += _indented(body.lines, 8)
        if body.form == "method" and not is_before:
            lines += ["", *self._method()]
        return lines

    def _method(self) -> list[str]:
        body = self.body
        return [f"    def {body.name}(self, {body.argument}):", *_indented(body.part, 8)]

    def _constructor(self) -> list[str]:
        """Attributes, layers and parameters."""
        body, sketch = self.body, self.sketch
        lines = self._constructor_lines(sketch.constructor)
        if body.form == "class":
            owned = {*self._constructor_lines(body.owned)}
            names = [] if self.is_hard or self.is_global else self._names_in(body.owned)
            given = ", ".join(name.lower() for name in names)
            lines = [line for line in lines if line not in owned]
            lines.append(f"self.{body.name.lower()} = {body.name}({given})")
        is_given = bool(self.given)
        for name, value in sketch.settings.items():
            if name not in sketch.options:
                lines.append(f"self.{name} = {name if is_given else value}")
        lines = lines if is_given else self._with_numbers(lines)
        if self.habits.kept:
            attributes = {line.split(" ")[0] for line in lines}
            names = [given.name for given in self.arguments if given.name not in sketch.settings]
            names = [name for name in names if f"self.{name}" not in attributes]
            lines = [f"self.{name} = {name}" for name in names] + lines
        return lines

    def _with_numbers(self, lines: Sequence[str]) -> list[str]:
        """Lines of a constructor with the numbers of layers' options."""
        for name in self.sketch.options:
            value = self.sketch.settings[name]
            lines = [re.sub(rf"(?<![\w.]){name}\b(?!=)", value, line) for line in lines]
        return list(lines)

    def _forward_head(self) -> str:
        hints = self.habits.hints
        kind = "Tensor" if hints == "Tensor" else "torch.Tensor"
        is_typed = hints in ("inputs", "full", "Tensor")
        kinds = {given.name: "float" if given.dtype == "float" else kind for given in self.sketch.inputs}
        typed = [f"{name}: {of}" if is_typed else name for name, of in kinds.items()]
        returned = "tuple" if self._has_several() else kind
        end = f" -> {returned}" if hints in ("full", "Tensor") else ""
        return f"def forward({', '.join(('self', *typed))}){end}:"

    def _has_several(self) -> bool:
        return len(self.results) > 1 or self.results[0].dtype == "tuple"

    def _forward_doc(self) -> str:
        shapes = [self._shape([axis.text for axis in given.axes]) for given in self.sketch.inputs]
        axes = self.results[0].axes
        result = None if self._has_several() else self._shape([axis.text for axis in axes]) if axes else ""
        return prose.forward_doc(self.sketch, self.habits, self.rng, shapes, result)

    def _shape(self, axes: Sequence[str]) -> str:
        text = f"({', '.join(axes)}{',' * (len(axes) == 1)})"
        return Places(self.places.sizes, self.places.spelled).text(text)

    def _docstring(self, text: str) -> list[str]:
        marks = self.habits.doc_quotes
        if "\n" not in text and self.rng.random() < 0.85:
            return [f"{marks}{text}{marks}"]
        first = "" if self.rng.random() < 0.35 else text.split("\n")[0]
        rest = text.split("\n")[1:] if first else text.split("\n")
        return [f"{marks}{first}", *rest, marks]

    # --- the whole

    def _makers(self, at: str, seed: float) -> list[str]:
        """Both functions, with the sizes of a GPU or of a CPU."""
        rng = random.Random(seed)
        lines = inputs_function(self.sketch, self.places, self.habits, rng, at)
        given = [argument for argument in self.arguments if argument.given]
        texts = [self.places.text(argument.given, at) for argument in given]
        if given and self.habits.arguments == "keyword":
            pairs = ", ".join(
                f"'{argument.name}': {text}" for argument, text in zip(given, texts, strict=True)
            )
            options = f"[[], {{{pairs}}}]"
        else:
            options = f"[{', '.join(texts)}]" if given else self.habits.options
        end = rng.choice(_NO_ARGUMENTS) if not given and self.habits.size_notes else ""
        return [*lines, "", "", "def get_init_inputs():", f"    return {options}{end}"]

    def _joined(self, constants: Sequence[str], inner: Sequence[str], makers: Sequence[str]) -> str:
        habits = self.habits
        constants = list(constants)
        if constants and habits.sections:
            constants = [self.rng.choice(_SECTIONS), *constants]
        blocks = [list(inner), constants, list(makers)]
        if constants and (habits.constants_first or (self.is_global and self.rng.random() < 0.4)):
            blocks = [constants, list(inner), list(makers)]
        text = "\n\n\n".join("\n".join(block).strip("\n") for block in blocks if block)
        if habits.spaced:
            text = text.replace("\n\n\n", "\n\n")
        if habits.quotes == '"':
            text = re.sub(r"(?<!')'([^'\n]*)'(?!')", r'"\1"', text)
        if habits.indent == 2:
            text = re.sub(r"^(?:    )+", lambda match: match[0][::2], text, flags=re.M)
        return f"{self._imports(text)}\n\n\n{text}\n"

    def _imports(self, text: str) -> str:
        habits = self.habits
        lines = ["import torch", habits.nn_import]
        if re.search(r"\bF\.", text) or habits.unused_import == "F":
            lines.append(habits.f_import)
        if habits.hints == "Tensor":
            lines.append("from torch import Tensor")
        if re.search(r"\bmath\.", text) or habits.unused_import == "math":
            lines[:0] = ["import math", ""] if self.rng.random() < 0.5 else ["import math"]
        return "\n".join(lines)


def _indented(lines: Sequence[str], by: int = 4) -> list[str]:
    return [f"{' ' * by}{line}" if line else "" for line in lines]


__all__ = ["Body", "Written", "source_of"]
