"""English of a drawn problem: docstrings and comments, made from its operators, sizes and inputs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.generator.draw.habits import Habits
from kernel_core.generator.draw.sketch import Sketch

_NOUNS = {
    "add": "addition", "sub": "subtraction", "mul": "multiplication", "div": "division",
    "true_divide": "division", "rsub": "subtraction", "pow": "power", "matmul": "matrix multiplication",
    "mm": "matrix multiplication", "bmm": "batched matrix multiplication", "linear": "linear transformation",
    "conv1d": "1D convolution", "conv2d": "2D convolution", "conv3d": "3D convolution",
    "conv_transpose1d": "1D transposed convolution", "conv_transpose2d": "2D transposed convolution",
    "conv_transpose3d": "3D transposed convolution", "relu": "ReLU", "gelu": "GELU", "silu": "SiLU",
    "elu": "ELU", "selu": "SELU", "celu": "CELU", "relu6": "ReLU6", "mish": "Mish", "leaky_relu": "LeakyReLU",
    "hardswish": "HardSwish", "hardtanh": "HardTanh", "sigmoid": "sigmoid activation",
    "tanh": "tanh activation",
    "softmax": "softmax", "log_softmax": "log-softmax", "layer_norm": "layer normalization",
    "rms_norm": "RMS normalization", "batch_norm": "batch normalization", "group_norm": "group normalization",
    "instance_norm": "instance normalization", "normalize": "normalization", "amax": "max reduction",
    "amin": "min reduction", "sum": "sum reduction", "mean": "mean reduction", "max": "max reduction",
    "min": "min reduction", "var": "variance", "std": "standard deviation", "norm": "vector norm",
    "cumsum": "cumulative sum", "cumprod": "cumulative product", "cat": "concatenation", "clamp": "clamping",
    "mse_loss": "MSE loss", "l1_loss": "L1 loss", "transpose": "transpose",
    "maximum": "element-wise maximum", "minimum": "element-wise minimum", "lerp": "linear interpolation",
    "max_pool1d": "1D max pooling", "max_pool2d": "2D max pooling", "max_pool3d": "3D max pooling",
    "avg_pool1d": "1D average pooling", "avg_pool2d": "2D average pooling",
    "avg_pool3d": "3D average pooling",
    "adaptive_avg_pool": "global average pooling", "embedding": "embedding lookup",
    "scaled_dot_product_attention": "scaled dot-product attention", "square": "squaring",
    "sqrt": "square root", "rsqrt": "reciprocal square root", "exp": "exponential", "abs": "absolute value",
    "l1_norm": "L1 normalization", "l2_norm": "L2 normalization", "frobenius_norm": "Frobenius normalization",
    "tril": "lower triangular part", "triu": "upper triangular part", "sgd_update": "SGD update",
    "adam_update": "Adam update", "rmsprop_update": "RMSprop update", "adagrad_update": "Adagrad update",
    "adadelta_update": "Adadelta update", "lion_update": "Lion update", "adamax_update": "Adamax update",
    "glu": "gated linear unit", "kl_div": "KL divergence", "neg": "negation", "view": "reshaping",
    "where": "element-wise selection", "getitem": "slicing",
    "index": "row lookup", "topk": "top-k selection", "argmax": "argmax over a dimension",
}  # fmt: skip
"""Nouns for operators; others are their names in words."""
_CLASS_LINES = (
    "Simple model that performs {}.", "Model that performs {}.", "A model that computes {}.", "Computes {}.",
    "Applies {}.", "Performs {}.", "A module that applies {}.", "Module for {}.", "PyTorch reference for {}.",
)  # fmt: skip
_PARAGRAPHS = (
    "Simple model that performs {}.\n\nUsed as a reference for optimized kernels.",
    "A reference implementation.\n\nIt computes {}.",
    "This module performs the following operations: {}.",
    "Model with {}.\n\nAll operations are standard PyTorch functions.",
)
_FORWARD_LINES = (
    "Apply {} to the input.", "Forward pass.", "Performs {}.", "Compute {}.",
    "Runs the forward pass of the model.", "Applies {} to the input tensor.",
)  # fmt: skip
_INIT_LINES = (
    "Initialize the module.", "Initializes the model.", "Set up the layers.", "Initialize parameters.",
)  # fmt: skip
_OPTIONS = {
    "dim": "dimension to operate on", "eps": "small constant for numerical stability", "lr": "learning rate",
    "beta1": "decay rate of the first moment", "beta2": "decay rate of the second moment",
    "weight_decay": "weight decay coefficient", "margin": "margin of the loss",
    "delta": "threshold of the loss",
    "alpha": "scaling factor", "scale": "scaling factor", "factor": "scaling factor",
    "multiplier": "scaling factor", "divisor": "value to divide by", "temperature": "softmax temperature",
    "kernel_size": "size of the kernel", "stride": "stride of the window",
    "padding": "padding added to the input", "output_padding": "size added to one side of the output",
    "dilation": "spacing between kernel elements", "groups": "number of groups",
    "pool_kernel_size": "size of the pooling window", "pool_size": "size of the pooling window",
    "output_size": "size of the output", "bias": "whether to add a learnable bias to the output",
    "p": "exponent of the norm", "num_groups": "number of groups", "step": "number of the step",
}  # fmt: skip
"""Meaning of an argument by its name."""
_INPUT_WORDS = ("Input tensor", "The input tensor", "Input", "Tensor")
_NOTES = ("Apply {}", "{}", "Compute {}", "Perform {}")


def noun(operator: str) -> str:
    """Return an operator's name in words."""
    return _NOUNS.get(operator) or operator.strip("_").replace("_", " ")


def listing(operators: Sequence[str], most: int = 6) -> str:
    """Return the nouns of operators, each once and in order."""
    nouns = list(dict.fromkeys(map(noun, operators)))[:most]
    return nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} and {nouns[-1]}"


def note(operators: Sequence[str], rng: random.Random) -> str:
    """Return a comment on a line of `forward`."""
    text = rng.choice(_NOTES).format(listing(operators, 3))
    return text[0].upper() + text[1:]


def class_doc(sketch: Sketch, habits: Habits, rng: random.Random, given: Sequence[tuple[str, str]]) -> str:
    """Return the docstring of the class; `given` are the constructor's arguments with their types."""
    nouns = listing(sketch.operators)
    if habits.class_doc == "paragraph":
        return rng.choice(_PARAGRAPHS).format(nouns)
    text = rng.choice(_CLASS_LINES).format(nouns)
    if habits.class_doc == "args" and given:
        return f"{text}\n\n{_arguments(sketch, habits, given)}"
    return text


def init_doc(sketch: Sketch, habits: Habits, rng: random.Random, given: Sequence[tuple[str, str]]) -> str:
    """Return the docstring of the constructor."""
    text = rng.choice(_INIT_LINES)
    return f"{text}\n\n{_arguments(sketch, habits, given)}" if habits.init_doc == "args" and given else text


def forward_doc(
    sketch: Sketch, habits: Habits, rng: random.Random, shapes: Sequence[str], result: str | None
) -> str:
    """Return the docstring of `forward`; `result` is the shape of the result, empty if it is not known.

    None as `result` says that there are several results.
    """
    text = rng.choice(_FORWARD_LINES).format(listing(sketch.operators))
    if habits.forward_doc == "line":
        return text
    word = rng.choice(_INPUT_WORDS)
    kinds = {"int64": "Tensor of indices", "bool": "Boolean mask"}
    rows = [
        (given.name, "float", "A number.") if given.dtype == "float"
        else (given.name, "torch.Tensor", f"{kinds.get(given.dtype, word)} of shape {shape}.")
        for given, shape in zip(sketch.inputs, shapes, strict=True)
    ]  # fmt: skip
    if result is None:
        returned = ("tuple", "The results.")
    else:
        of_shape = f" of shape {result}" if result else ""
        returned = ("torch.Tensor", f"{rng.choice(('Output tensor', 'Result', 'The output'))}{of_shape}.")
    return f"{text}\n\n{_rows(habits.doc_style, rows, returned)}"


def _arguments(sketch: Sketch, habits: Habits, given: Sequence[tuple[str, str]]) -> str:
    meanings = {name.lower(): meaning for name, meaning in sketch.meanings.items()}
    rows = [
        (name, kind, f"{(_OPTIONS | meanings).get(name, name.replace('_', ' ')).capitalize()}.")
        for name, kind in given
    ]
    return _rows(habits.doc_style, rows, None)


def _rows(style: str, rows: Sequence[tuple[str, str, str]], returned: tuple[str, str] | None) -> str:
    if style == "sphinx":
        lines = [f":param {name}: {text}" for name, _, text in rows]
        return "\n".join([*lines, f":return: {returned[1]}"] if returned else lines)
    if style == "dash":
        lines = [f"- {name}: {text}" for name, _, text in rows]
        return "\n".join([*lines, "", f"Output: {returned[1]}"] if returned else lines)
    if style == "numpy":
        lines = ["Parameters", "----------"]
        lines += [line for name, kind, text in rows for line in (f"{name} : {kind}", f"    {text}")]
        more = ["", "Returns", "-------", returned[0], f"    {returned[1]}"] if returned else []
        return "\n".join([*lines, *more])
    lines = ["Args:", *(f"    {name} ({kind}): {text}" for name, kind, text in rows)]
    return "\n".join([*lines, "", "Returns:", f"    {returned[0]}: {returned[1]}"] if returned else lines)
