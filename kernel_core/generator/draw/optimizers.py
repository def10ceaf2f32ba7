"""Steps of optimisers on one tensor: parameter, gradient and state come in, the new ones go out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernel_core.generator.draw.forms import FILLS
from kernel_core.generator.draw.sizes import Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor

_PARAMETER, _GRADIENT = ("param", "p", "weight", "params", "w"), ("grad", "g", "gradient", "grads", "d_p")
_FIRST = ("exp_avg", "m", "momentum_buffer", "momentum", "buf", "first_moment")
_SECOND = ("exp_avg_sq", "v", "square_avg", "second_moment", "sq_avg", "state_sum")


@dataclass
class _Step:
    """A step under way: the values that it reads, and its hyperparameters."""

    sketch: Sketch
    axes: tuple[Axis, ...]
    p: Tensor
    g: Tensor
    rate: str
    b1: str
    b2: str
    eps: str

    def first(self) -> Tensor:
        """Return a moment of gradients as an input."""
        return self.sketch.input(self.axes, names=_FIRST)

    def second(self) -> Tensor:
        """Return a moment of squared gradients as an input, which is not negative."""
        return self.sketch.input(self.axes, FILLS["rand"], names=_SECOND)

    def emit(self, text: str, *operators: str) -> Tensor:
        """Add a line."""
        return self.sketch.emit(text, self.axes, *operators)

    def averaged(self, old: Tensor, new: str, rate: str) -> Tensor:
        """Return an exponential average in one of its spellings."""
        texts = [f"{rate} * {old} + (1 - {rate}) * {new}", f"{old} * {rate} + {new} * (1 - {rate})"]
        texts.append(f"torch.lerp({new}, {old}, {rate})")
        texts.append(f"{old}.mul({rate}).add({new}, alpha=1 - {rate})")
        return self.emit(self.sketch.rng.choice(texts), "exponential_average")


def optimizer(sketch: Sketch) -> list[Tensor]:
    """Draw one step of an optimiser."""
    axes = sketch.axes(sketch.pick("z", "z", "mn", "ko", "bchw"))
    settings = sketch.habits.settings
    if settings == "inline" and sketch.chance(0.6):
        settings = sketch.pick("default", "argument")
    sketch.habits = replace(sketch.habits, dtype="float32", settings=settings)
    p, g = sketch.input(axes, names=_PARAMETER), sketch.input(axes, names=_GRADIENT)
    choose = sketch.rng.choice
    values = {
        "lr": choose(("0.001", "0.01", "1e-3", "3e-4", "0.1")),
        "beta1": choose(("0.9", "0.95", "0.8")),
        "beta2": choose(("0.999", "0.99", "0.98")),
        "eps": choose(("1e-8", "1e-6", "1e-5")),
    }
    rate, b1, b2, eps = (sketch.setting(name, value) for name, value in values.items())
    if sketch.chance(0.3):
        decay = sketch.setting("weight_decay", choose(("0.01", "1e-4", "0.1")))
        g = sketch.emit(
            choose((f"{g} + {decay} * {p}", f"{g}.add({p}, alpha={decay})")), axes, "weight_decay"
        )
    return choose(_STEPS)(_Step(sketch, axes, p, g, rate, b1, b2, eps))


def _sgd(step: _Step) -> list[Tensor]:
    return [step.emit(f"{step.p} - {step.rate} * {step.g}", "sgd_update")]


def _momentum(step: _Step) -> list[Tensor]:
    m = step.first()
    choose = step.sketch.rng.choice
    new = step.emit(choose((f"{step.b1} * {m} + {step.g}", f"{m} * {step.b1} + {step.g}")), "momentum")
    is_nesterov = step.sketch.chance(0.3)
    moved = step.emit(f"{step.g} + {step.b1} * {new}", "nesterov_momentum") if is_nesterov else new
    text = choose((f"{step.p} - {step.rate} * {moved}", f"{step.p}.add({moved}, alpha=-{step.rate})"))
    return [step.emit(text, "sgd_update"), new]


def _moments(step: _Step) -> tuple[Tensor, Tensor]:
    """Averages of the gradient and of its square."""
    g = step.g
    m, v = step.averaged(step.first(), f"{g}", step.b1), step.second()
    square = step.sketch.pick(f"{g} * {g}", f"{g} ** 2", f"{g}.square()", f"{g}.pow(2)")
    text = step.sketch.pick(
        f"{step.b2} * {v} + (1 - {step.b2}) * {square}", f"{v} * {step.b2} + {square} * (1 - {step.b2})",
        f"torch.addcmul({v} * {step.b2}, {g}, {g}, value=1 - {step.b2})",
    )  # fmt: skip
    return m, step.emit(text, "second_moment")


def _adam(step: _Step, decay: str = "") -> list[Tensor]:
    """Adam with and without the correction of the bias; `decay` shrinks the parameter first."""
    sketch, p = step.sketch, step.p
    m, v = first, second = _moments(step)
    if sketch.chance(0.6):
        time = sketch.setting("step", sketch.pick("1", "10", "100"))
        first = step.emit(f"{m} / (1 - {step.b1} ** {time})", "bias_correction")
        second = step.emit(f"{v} / (1 - {step.b2} ** {time})", "bias_correction")
    if decay:
        texts = (f"{p} * (1 - {step.rate} * {decay})", f"{p} - {step.rate} * {decay} * {p}")
        p = step.emit(sketch.rng.choice(texts), "decoupled_weight_decay")
    root = sketch.pick(f"torch.sqrt({second})", f"{second}.sqrt()")
    return [step.emit(f"{p} - {step.rate} * {first} / ({root} + {step.eps})", "adam_update"), m, v]


def _adamw(step: _Step) -> list[Tensor]:
    return _adam(step, step.sketch.setting("weight_decay", step.sketch.pick("0.01", "0.1", "0.05")))


def _amsgrad(step: _Step) -> list[Tensor]:
    most = step.sketch.input(step.axes, FILLS["rand"], names=("max_exp_avg_sq", "v_max", "v_hat"))
    m, v = _moments(step)
    most = step.emit(f"torch.maximum({most}, {v})", "maximum")
    new = step.emit(f"{step.p} - {step.rate} * {m} / ({most}.sqrt() + {step.eps})", "adam_update")
    return [new, m, v, most]


def _lamb(step: _Step) -> list[Tensor]:
    """Lamb, and Lars without the second moment: the norms of parameter and update scale the step."""
    sketch, p = step.sketch, step.p
    decay = sketch.setting("weight_decay", sketch.pick("0.01", "0.1", "1e-4"))
    moments: tuple[Tensor, ...] = _moments(step) if sketch.chance(0.7) else ()
    if moments:
        m, v = moments
        update = step.emit(f"{m} / ({v}.sqrt() + {step.eps}) + {decay} * {p}", "lamb_update")
    else:
        update = step.emit(f"{step.g} + {decay} * {p}", "lars_update")
    norm = sketch.pick("torch.norm({})", "{}.norm()", "torch.sqrt(torch.sum({0} * {0}))")
    sizes = [sketch.emit(norm.format(x), (), "norm") for x in (p, update)]
    ratio = sketch.emit(f"{sizes[0]} / ({sizes[1]} + {step.eps})", (), "trust_ratio")
    return [step.emit(f"{p} - {step.rate} * {ratio} * {update}", "sgd_update"), *moments]


def _rmsprop(step: _Step) -> list[Tensor]:
    v, g = step.second(), step.g
    square = step.emit(f"{step.b2} * {v} + (1 - {step.b2}) * {g}.square()", "second_moment")
    texts = (
        f"{step.p} - {step.rate} * {g} / (torch.sqrt({square}) + {step.eps})",
        f"{step.p} - {step.rate} * {g} * torch.rsqrt({square} + {step.eps})",
        f"torch.addcdiv({step.p}, {g}, {square}.sqrt() + 1e-8, value=-0.01)",
    )
    return [step.emit(step.sketch.rng.choice(texts), "rmsprop_update"), square]


def _lion(step: _Step) -> list[Tensor]:
    m, g = step.first(), step.g
    update = step.emit(f"torch.sign({step.b1} * {m} + (1 - {step.b1}) * {g})", "sign")
    return [step.emit(f"{step.p} - {step.rate} * {update}", "lion_update"), step.averaged(m, f"{g}", step.b2)]


def _adagrad(step: _Step) -> list[Tensor]:
    v, g = step.second(), step.g
    total = step.emit(
        step.sketch.rng.choice((f"torch.addcmul({v}, {g}, {g}, value=1.0)", f"{v} + {g} * {g}")),
        "sum_of_squares",
    )
    texts = (
        f"torch.addcdiv({step.p}, {g}, {total}.sqrt() + 1e-10, value=-0.01)",
        f"{step.p} - {step.rate} * {g} / ({total}.sqrt() + {step.eps})",
    )
    return [step.emit(step.sketch.rng.choice(texts), "adagrad_update"), total]


def _adadelta(step: _Step) -> list[Tensor]:
    v, g = step.second(), step.g
    delta = step.sketch.input(step.axes, FILLS["rand"], names=("acc_delta", "delta", "accumulated"))
    square = step.emit(f"{step.b1} * {v} + (1 - {step.b1}) * {g} * {g}", "second_moment")
    moved = step.emit(
        f"torch.sqrt({delta} + {step.eps}) / torch.sqrt({square} + {step.eps}) * {g}", "sqrt", "div", "mul"
    )
    changed = step.emit(f"{step.b1} * {delta} + (1 - {step.b1}) * {moved} * {moved}", "second_moment")
    return [step.emit(f"{step.p} - {moved}", "adadelta_update"), square, changed]


def _adamax(step: _Step) -> list[Tensor]:
    m, v, g = step.first(), step.second(), step.g
    m = step.averaged(m, f"{g}", step.b1)
    norm = step.emit(f"torch.maximum({step.b2} * {v}, {g}.abs())", "infinity_norm")
    return [step.emit(f"{step.p} - {step.rate} * {m} / ({norm} + {step.eps})", "adamax_update"), m, norm]


_STEPS: tuple[Callable[[_Step], list[Tensor]], ...] = (
    _sgd, _momentum, _momentum, _adam, _adamw, _amsgrad, _lamb, _rmsprop, _lion, _adagrad, _adadelta, _adamax,
)  # fmt: skip
