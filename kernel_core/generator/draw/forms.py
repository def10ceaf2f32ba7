"""Forms in which each operator of the table is called: inputs with their axes, and arguments.

A pointwise operator needs no line: its inputs are its parameters, and a domain where its results are finite
is found by trying. Others have a line each. `x*` is a tensor of any shape, `y=x` one of the same shape, `y~x`
one that broadcasts; letters in brackets are kinds of `sketch.KINDS`, with a factor in front. Behind `:` is
what fills it. `@dim`, `@dims`, `@f`, `@k` are an axis, several, a number with and without a fraction.
"""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernel_core.generator.operators import BUILDERS, pointwise
from kernel_core.generator.operators.pointwise import Entry

_TABLE = """
# arithmetic
add sub | x* y~x | x, y ; x, y, alpha=@f
add sub mul div | x* | x, @f
subtract divide multiply true_divide | x* y~x | x, y
rsub | x* y~x | x, y ; x, @f
div divide | x* y=x:pos | x, y, rounding_mode='floor' ; x, y, rounding_mode='trunc'
floor_divide remainder fmod | x* y=x:pos | x, y ; x, @f
pow | x*:pos y=x | x, y ; x, 2 ; x, 3 ; x, 0.5 ; x, -1 ; x, 1.7
float_power | x*:pos | x, 2.5 ; x, 0.5
clamp clip | x* | x, min=-0.5, max=0.8 ; x, 0.0, 1.0 ; x, min=0.1 ; x, max=0.5
clamp_min clamp_max | x* | x, @f
gelu | x* | x ; x, approximate='tanh'
logit | x*:rand | x ; x, eps=1e-6 ; x, eps=0.01
round | x* | x ; x, decimals=1 ; x, decimals=2
nan_to_num | x* | x ; x, nan=@f ; x, nan=0.0, posinf=1.0, neginf=-1.0
addcmul addcdiv | x* y=x z=x:pos | x, y, z ; x, y, z, value=@f
lerp | x* y=x z=x:rand | x, y, z ; x, y, @f
where | m*:bool x=m y=m | m, x, y ; m, x, 0.0
masked_fill | x* m=x:bool | x, m, @f ; x, m, 0.0 ; x, m, float('-inf')
isclose | x* y=x | x, y ; x, y, rtol=0.1, atol=0.05
logsigmoid | x* | x
prelu | x(bchw) w(c):param | x, w
glu | x(b2n) | x ; x, dim=-1 ; x, dim=1
glu | x(b2chw) | x, dim=1
rrelu | x* | x, training=False
mvlgamma | x*:above | x, 2 ; x, 3
float half bfloat16 int long bool | x* | x
to | x* | x, torch.float16 ; x, torch.int32 ; x, dtype=torch.float64
dropout | x* | x, p=0.2, training=False

# reduction
sum mean nansum | x* | x ; x, dim=@dim ; x, dim=@dim ; x, @dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
amax amin | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
max min | x* | x ; x, dim=@dim => [0] ; x, @dim => .values ; x, dim=@dim, keepdim=True => [0] ; x, dim=@dim => .indices
argmax argmin | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x
prod | x(mn):near | x, dim=@dim ; x, @dim, keepdim=True
any all | x*:bool | x ; x, dim=@dim
count_nonzero | x*:whole | x ; x, dim=@dim
var std | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dim, unbiased=False ; x, dim=@dims, correction=0 ; x
var_mean std_mean | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dim, unbiased=False
aminmax | x* | x, dim=@dim ; x
logsumexp | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
norm vector_norm | x* | x, dim=@dim ; x ; x, dim=@dim, keepdim=True ; x, 1, dim=@dim ; x, float('inf'), dim=@dim ; x, 3, dim=@dim

# softmax
softmax log_softmax softmin | x* | x, dim=@dim ; x, dim=-1 ; x, -1

# norm
normalize | x* | x, dim=@dim ; x, p=1, dim=@dim ; x, dim=-1, eps=1e-6
layer_norm | x(bsn) w(n):param b(n):param | x, (N,), w, b ; x, (N,), w, b, 1e-6
layer_norm | x(mn) | x, (N,) ; x, (N,), eps=1e-6
rms_norm | x(bsn) w(n):param | x, (N,), w ; x, (N,), w, 1e-6
rms_norm | x(mn) | x, (N,) ; x, (N,), eps=1e-5
group_norm | x(bchw) w(c):param b(c):param | x, 4, w, b ; x, 2, w, b, eps=1e-6
group_norm | x(bcl) | x, 4 ; x, num_groups=2
instance_norm | x(bchw) w(c):param b(c):param | x, weight=w, bias=b ; x, weight=w, bias=b, eps=1e-4
instance_norm | x(bcl) | x
batch_norm | x(bchw) m(c):buffer v(c):var w(c):param b(c):param | x, m, v, w, b ; x, m, v, w, b, training=False, eps=1e-3
batch_norm | x(mn) m(n):buffer v(n):var | x, m, v

# loss
mse_loss l1_loss smooth_l1_loss huber_loss | x* y=x | x, y ; x, y, reduction='sum' ; x, y, reduction='none'
smooth_l1_loss | x* y=x | x, y, beta=0.5
huber_loss | x* y=x | x, y, delta=0.5 ; x, y, delta=2.0, reduction='sum'
binary_cross_entropy | x*:rand y=x:rand | x, y ; x, y, reduction='sum'
binary_cross_entropy_with_logits | x* y=x:rand | x, y ; x, y, reduction='sum' ; x, y, reduction='none'
kl_div | x(mn):logp y=x:prob | x, y, reduction='batchmean' ; x, y, reduction='sum' ; x, y, reduction='none'
soft_margin_loss | x* y=x:sign | x, y ; x, y, reduction='sum'
hinge_embedding_loss | x* y=x:sign | x, y ; x, y, margin=0.5
margin_ranking_loss | x(z) y=x t=x:sign | x, y, t ; x, y, t, margin=0.3
poisson_nll_loss | x* y=x:rand | x, y ; x, y, reduction='sum'
gaussian_nll_loss | x* y=x v=x:pos | x, y, v ; x, y, v, reduction='sum'
cosine_embedding_loss | x(mn) y=x t(m):sign | x, y, t ; x, y, t, margin=0.2
triplet_margin_loss | x(mn) y=x z=x | x, y, z ; x, y, z, margin=0.5
cross_entropy | x(mv) t(m):below(v) | x, t ; x, t, reduction='sum' ; x, t, reduction='none'
nll_loss | x(mv):logp t(m):below(v) | x, t ; x, t, reduction='sum'
cosine_similarity | x(mn) y=x | x, y ; x, y, dim=-1 ; x, y, dim=1
cosine_similarity | x(bchw) y=x | x, y, dim=1
pairwise_distance | x(mn) y=x | x, y ; x, y, p=1 ; x, y, keepdim=True
cdist | x(mk) y(ok) | x, y ; x, y, p=1

# layout
permute | x(bsn) | x, (0, 2, 1) ; x, (2, 0, 1) ; x, (1, 0, 2)
permute | x(bchw) | x, (0, 2, 3, 1) ; x, (0, 3, 1, 2) ; x, (1, 0, 2, 3)
transpose swapaxes swapdims | x(bsn) | x, 1, 2 ; x, 0, 1 ; x, -1, -2
movedim moveaxis | x(bchw) | x, 1, -1 ; x, -1, 1
t adjoint | x(mn) | x
flip | x(bchw) | x, [-1] ; x, dims=(2, 3) ; x, [1]
flip | x(mn) | x, [0] ; x, dims=[1] ; x, dims=(0, 1)
fliplr flipud | x(mn) | x
rot90 | x(mn) | x, 1, (0, 1) ; x, k=2, dims=(0, 1)
rot90 | x(bchw) | x, 1, (2, 3) ; x, -1, dims=(2, 3)
roll | x(mn) | x, @k, 1 ; x, shifts=-@k, dims=0 ; x, shifts=(1, 2), dims=(0, 1)
roll | x(bchw) | x, shifts=@k, dims=-1 ; x, (1, -1), (2, 3)
repeat tile | x(mn) | x, 1, 2 ; x, 2, 3
tile | x(mn) | x, (2, 1) ; x, (1, 3)
repeat_interleave | x(bsn) | x, 2, dim=1 ; x, @k, dim=-1 ; x, 3, dim=0
cat concat concatenate | x(mn) y(mo) | [x, y], dim=1 ; (x, y), dim=-1 ; [x, y, x], 1
cat concat concatenate | x(bchw) y(bphw) | [x, y], dim=1 ; (x, y), 1
stack | x* y=x | [x, y] ; [x, y], dim=1 ; (x, y), dim=-1
hstack vstack | x(mn) y=x | [x, y] ; (x, y, x)
pad | x(mn) | x, (1, 2) ; x, (0, 0, 2, 1) ; x, (@k, @k), value=@f ; x, (1, 1), 'constant', 0
pad | x(bchw) | x, (1, 1, 1, 1) ; x, (2, 1, 0, 3), value=@f ; x, (1, 1, 2, 2), mode='reflect' ; x, (1, 2, 1, 2), mode='replicate' ; x, (1, 1, 1, 1), mode='circular'
pad | x(bcl) | x, (@k, @k), mode='reflect' ; x, (3, 0) ; x, (2, 1), mode='replicate'
tril triu | x(mn) | x ; x, diagonal=1 ; x, -1
tril triu | x(bss) | x ; x, 1
diagonal | x(mm) | x ; x, 0
diagonal | x(bss) | x, dim1=1, dim2=2 ; x, dim1=-2, dim2=-1
diagonal | x(mn) | x, 1 ; x, offset=-2
trace | x(mm) | x
trace | x(mn) | x
diag | x(mm) | x ; x, 1
diag_embed | x(bq) | x ; x, offset=1
pixel_shuffle | x(b4chw) | x, 2
pixel_unshuffle | x(bchw) | x, 2
channel_shuffle | x(bchw) | x, 2 ; x, 4
interpolate | x(bchw) | x, scale_factor=2, mode='nearest' ; x, scale_factor=3
unsqueeze | x(mn) | x, 1 ; x, -1
flatten | x(bchw) | x, 1 ; x, start_dim=2 ; x
narrow | x(mn) | x, 1, 1, 3 ; x, dim=-1, start=0, length=4
select | x(bsn) | x, 1, 0 ; x, dim=1, index=-1 ; x, 1, 2
chunk | x(m2n) | x, 2, dim=1 => [0] ; x, 2, dim=-1
split | x(m4) | x, 2, dim=1 ; x, 2, -1
unbind | x(mn2) | x, dim=2 ; x, -1
expand_as | x(1n) y(mn) | x, y
outer ger | x(m) y(n) | x, y

# indexing
index_select | x(mn) i(q):below(n) | x, 1, i ; x, dim=-1, index=i ; x, dim=1, index=i
index_select | x(vn) i(q):below(v) | x, 0, i ; x, dim=0, index=i
index_select | x(bsn) i(q):below(s) | x, 1, i
gather | x(mn) i(mq):below(n) | x, 1, i ; x, dim=1, index=i ; x, -1, i
gather | x(vn) i(qn):below(v) | x, 0, i
gather | x(bsn) i(bqn):below(s) | x, 1, i ; x, dim=1, index=i
take_along_dim | x(mn) i(mq):below(n) | x, i, dim=1 ; x, i, dim=-1
take | x(vn) i(q):below(v) | x, i
embedding | i(bs):below(v) w(vn):param | i, w
embedding | i(m):below(v) w(vn) | i, w
index_add | x(vn) i(q):below(v) y(qn) | x, 0, i, y ; x, dim=0, index=i, source=y ; x, 0, i, y, alpha=@f
index_copy | x(vn) i(q):once(v) y(qn) | x, 0, i, y ; x, dim=0, index=i, source=y
index_fill | x(vn) i(q):once(v) | x, 0, i, @f ; x, dim=0, index=i, value=0.0
index_reduce | x(vn) i(q):below(v) y(qn) | x, 0, i, y, 'amax' ; x, 0, i, y, reduce='amin'
index_put | x(vn) i(q):once(v) y(qn) | x, (i,), y ; x, [i], y, accumulate=True
put | x(vn) i(q):once(v) y(q) | x, i, y ; x, i, y, accumulate=True
scatter | x(mn) i(mq):order y(mq) | x, 1, i, y ; x, dim=1, index=i, src=y ; x, -1, i, @f
scatter_add | x(mn) i(mq):below(n) y(mq) | x, 1, i, y ; x, dim=-1, index=i, src=y
scatter_reduce | x(mn) i(mq):below(n) y(mq) | x, 1, i, y, 'amax' ; x, 1, i, y, reduce='sum' ; x, dim=1, index=i, src=y, reduce='amin'
select_scatter | x(bsn) y(bn) | x, y, 1, 0 ; x, y, dim=1, index=2
slice_scatter | x(mn) y(m4) | x, y, 1, 0, 4 ; x, y, dim=1, start=2, end=6
one_hot | i(bs):seven | i, 7 ; i, num_classes=9

# order
sort | x(bs) | x => [0] ; x, dim=-1 => .values ; x, descending=True => [0] ; x, dim=1, descending=True => .indices
argsort | x(bs) | x ; x, dim=-1, descending=True ; x, dim=1
msort | x(sb) | x
topk | x(bs) | x, 3 => [0] ; x, k=@k, dim=-1 => .values ; x, 2, largest=False => [0] ; x, 3, dim=1 => .indices
kthvalue | x(bs) | x, 3 => [0] ; x, k=2, dim=-1 => .values ; x, 2, dim=1, keepdim=True => [0]
median nanmedian | x(bs) | x, dim=-1 => [0] ; x, dim=1, keepdim=True => .values
quantile nanquantile | x(bs) | x, 0.3, dim=-1 ; x, 0.5, dim=1, keepdim=True ; x, q=0.9, dim=-1

# product
matmul mm | x(mk) y(ko) | x, y
matmul bmm | x(bsk) y(bko) | x, y
matmul | x(bsk) y(ko) | x, y
matmul | x(besf) y(befs) | x, y
matmul | x(mk) y(k) | x, y
mv | x(mk) y(k) | x, y
dot inner vdot | x(z) y=x | x, y
inner | x(mk) y(ok) | x, y
linear | x(mk) w(ok):param | x, w
linear | x(bsk) w(ok):param c(o):param | x, w, c ; x, w, bias=c
linear | x(mk) w(ok) c(o) | x, w, c
addmm | c(o) x(mk) y(ko) | c, x, y ; c, x, y, beta=@f, alpha=@f
addmm | c(mo) x(mk) y(ko) | c, x, y ; c, x, y, alpha=@f ; c, x, y, beta=@f
baddbmm | c(bso) x(bsk) y(bko) | c, x, y ; c, x, y, beta=@f, alpha=@f
addbmm | c(so) x(bsk) y(bko) | c, x, y
addmv | c(m) x(mk) y(k) | c, x, y ; c, x, y, alpha=@f
addr | c(mn) x(m) y(n) | c, x, y ; c, x, y, beta=@f
bilinear | x(bc) y(bp) w(ecp):param | x, y, w
einsum | x(bsk) y(bko) | 'bsk,bko->bso', x, y ; 'bij,bjk->bik', x, y
einsum | x(mk) y(ok) | 'ik,jk->ij', x, y ; 'mk,nk->mn', x, y
einsum | x(bsef) y(bmef) | 'bqhd,bkhd->bhqk', x, y ; 'bshd,bthd->bhst', x, y
einsum | x(mn) y=x | 'ij,ij->i', x, y
einsum | x(m) y(n) | 'i,j->ij', x, y

# scan
cumsum | x* | x, dim=@dim ; x, @dim ; x, dim=-1
cumprod | x(mn):near | x, dim=@dim ; x, dim=-1
logcumsumexp | x* | x, dim=@dim ; x, dim=-1
cummax cummin | x* | x, dim=@dim => [0] ; x, dim=-1 => .values ; x, @dim => [1]

# pooling
max_pool2d | x(bchw) | x, 2 ; x, 2, return_indices=True ; x, 3, stride=2, padding=1 ; x, kernel_size=2, stride=2 ; x, (2, 3)
avg_pool2d | x(bchw) | x, 2 ; x, 3, stride=1, padding=1 ; x, kernel_size=2 ; x, kernel_size=3, stride=2
max_pool1d | x(bcl) | x, 2 ; x, kernel_size=3, stride=2 ; x, 4
avg_pool1d | x(bcl) | x, 2 ; x, kernel_size=4 ; x, 3, stride=1, padding=1
max_pool3d avg_pool3d | x(bcdhw) | x, 2 ; x, kernel_size=2, stride=2
adaptive_avg_pool2d adaptive_max_pool2d | x(bchw) | x, 1 ; x, (1, 1) ; x, 2
adaptive_avg_pool1d adaptive_max_pool1d | x(bcl) | x, 1 ; x, 4
adaptive_avg_pool3d | x(bcdhw) | x, 1 ; x, (1, 1, 1)
lp_pool1d | x(bcl) | x, 2, 2 ; x, norm_type=2, kernel_size=4
lp_pool2d | x(bchw) | x, 2, 2

# convolution
conv1d | x(bcl) w(pc3):param | x, w ; x, w, padding=1 ; x, w, stride=2 ; x, w, padding=2, dilation=2
conv2d | x(bchw) w(pc33):param b(p):param | x, w, b, padding=1 ; x, w, b ; x, w, b, stride=2, padding=1
conv2d | x(bchw) w(pc11):param | x, w
conv2d | x(bchw) w(pc33) | x, w ; x, w, padding=1 ; x, w, padding='same'
conv3d | x(bcdhw) w(pc333):param | x, w, padding=1 ; x, w
conv_transpose1d | x(bcl) w(cp4):param | x, w, stride=2, padding=1 ; x, w
conv_transpose2d | x(bchw) w(cp33):param | x, w, padding=1 ; x, w, stride=2

# attention
scaled_dot_product_attention | q(besf) k=q v=q | q, k, v ; q, k, v, is_causal=True ; q, k, v, scale=0.125
"""  # noqa: E501

FILLS = {
    "pos": "torch.rand({}) + 0.5",
    "above": "torch.rand({}) * 4 + 3",
    "rand": "torch.rand({})",
    "near": "torch.rand({}) * 0.4 + 0.8",
    "whole": "torch.randint(0, 3, {tuple})",
    "seven": "torch.randint(0, 7, {tuple})",
    "bool": "torch.rand({}) > 0.5",
    "sign": "torch.randint(0, 2, {tuple}) * 2.0 - 1.0",
    "order": "torch.rand({}).argsort(-1)",
    "prob": "torch.softmax(torch.randn({}), dim=-1)",
    "logp": "torch.log_softmax(torch.randn({}), dim=-1)",
}
"""Expressions that fill an input."""
_DOMAINS = ("randn", FILLS["rand"], "torch.rand({}) + 1.0", "torch.rand({}) * 1.8 - 0.9")
"""Tried in order for a pointwise operator."""


@dataclass(frozen=True)
class Given:
    """One input of a form."""

    name: str
    shape: str
    """Kinds of sizes; `*` for any, `=x` for the same as another's, `~x` for one that broadcasts to it."""
    fill: str = ""


@dataclass(frozen=True)
class Form:
    """One way to call an operator."""

    operator: str
    family: str
    inputs: tuple[Given, ...]
    arguments: str
    result: str = ""
    """Part of the result that is taken, such as `[0]`."""


def _given(text: str) -> Given:
    match = re.fullmatch(r"([a-z])(\*|\([^)]*\)|[=~][a-z])(?::(.+))?", text)
    assert match is not None, text
    return Given(match[1], match[2].strip("()"), match[3] or "")


@functools.cache
def forms() -> dict[str, tuple[Form, ...]]:
    """Forms by the name of torch that they call; names that the table of operators lacks are left out."""
    known: dict[str, list[Form]] = {}
    family = ""
    for line in filter(None, _TABLE.strip().splitlines()):
        if line.startswith("# "):
            family = line[2:]
            continue
        names, inputs, calls = (part.strip() for part in line.split(" | ", 2))
        for name in names.split():
            for call in calls.split(" ; "):
                arguments, _, result = call.partition(" => ")
                form = Form(
                    name, family, tuple(map(_given, inputs.split())), arguments.strip(), result.strip()
                )
                if name in BUILDERS or name in pointwise():
                    known.setdefault(name, []).append(form)
    for name, entry in pointwise().items():
        if name not in known and spellings(name):
            known[name] = [*_pointwise_forms(name, entry)]
    return {name: tuple(listed) for name, listed in known.items()}


def _pointwise_forms(name: str, entry: Entry) -> list[Form]:
    """Calls with tensors for what is required, and with numbers for some options."""
    required = entry.required
    letters = "xyzu"[: len(required)]
    fill = "whole" if entry.kind == "whole" else domain_of(name, len(required))
    inputs = tuple(
        Given(letter, "*" if at == 0 else "~x", "bool" if parameter == "condition" else fill)
        for at, (letter, parameter) in enumerate(zip(letters, required, strict=True))
    )
    tensors = ", ".join(letters)
    family = "comparison" if entry.kind == "bool" else "bits" if entry.kind == "whole" else "pointwise"
    if name == "threshold":
        return [
            Form(name, family, inputs[:1], f"x, {first}, {second}")
            for first, second in ((0.5, 0.0), (0.1, 2.0))
        ]
    made = [Form(name, family, inputs, tensors)]
    if len(required) == 2 and entry.kind == "bool":
        made.append(Form(name, family, inputs[:1], "x, @f"))
    for option, value in entry.defaults.items():
        made.append(Form(name, family, inputs, f"{tensors}, {option}={_varied(option, value)}"))
    return made


def _varied(option: str, value: float) -> str:
    """An option's value beside its default."""
    if option == "min_val":
        return "-2.0"
    if option == "max_val":
        return "2.0"
    return "10" if option == "threshold" else "@f"


@functools.cache
def domain_of(name: str, count: int) -> str:
    """A filling for which an operator's results are finite and differ."""
    function = eval(spellings(name)[0], {"torch": torch, "F": F})
    for domain in _DOMAINS:
        torch.manual_seed(0)
        made = domain.replace("{}", "(64,)") if "(" in domain else f"torch.{domain}(64)"
        try:
            result = function(*(eval(made, {"torch": torch}) for _ in range(count)))
        except (RuntimeError, TypeError):
            continue
        if result.dtype is torch.bool or (bool(result.isfinite().all()) and result.abs().max() < 1e4):
            return domain
    return "randn"


@functools.cache
def spellings(name: str) -> tuple[str, ...]:
    """Torch's functions of a name: `torch.relu`, `F.relu`, `torch.special.…`, `torch.linalg.…`."""
    modules = {"torch": torch, "F": F, "torch.special": torch.special, "torch.linalg": torch.linalg}
    if name in ("dropout", "prelu", "batch_norm", "instance_norm", "group_norm", "layer_norm", "threshold"):
        return (f"F.{name}",)
    if name in (
        "adaptive_avg_pool1d",
        "avg_pool1d",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "channel_shuffle",
    ):
        return (f"F.{name}",)
    if name == "norm":
        return ("torch.norm", "torch.linalg.norm")
    if name == "diagonal":
        return ("torch.diagonal",)
    return tuple(
        f"{text}.{name}" for text, module in modules.items() if callable(getattr(module, name, None))
    )


@functools.cache
def tails() -> tuple[str, ...]:
    """Unary operators with finite results for all moderate numbers, for chains."""
    smooth = []
    for name, entry in pointwise().items():
        unary = len(entry.required) == 1 and entry.kind in ("float", "same") and spellings(name)
        if unary and name not in _STEEP and domain_of(name, 1) == "randn" and _is_smooth(name):
            smooth.append(name)
    return (*smooth, "gelu")


_STEEP = frozenset(
    {"exp", "exp2", "expm1", "sinh", "cosh", "tan", "i0", "i1", "erfcx", "frac", "lgamma", "gammaln"}
)


def _is_smooth(name: str) -> bool:
    """True where results stay finite and moderate far out, and are not of few values."""
    function = eval(spellings(name)[0], {"torch": torch, "F": F})
    result = function(torch.linspace(-30, 30, 601))
    return bool(result.isfinite().all()) and result.abs().max() < 1e4 and result.unique().numel() > 60


def resolved(text: str, rank: int, rng: random.Random) -> str:
    """Arguments with drawn axes and numbers."""
    last = rng.choice((-1, rank - 1)) if rank else 0

    def drawn(match: re.Match[str]) -> str:
        if match[1] == "dims":
            pair = sorted(rng.sample(range(rank), min(2, rank)))
            return str(tuple(pair)) if rng.random() < 0.7 else str([axis - rank for axis in pair])
        if match[1] == "dim":
            return str(rng.choice((last, last, rng.randrange(rank), rng.randrange(rank))))
        return (
            rng.choice(("0.5", "2.0", "0.1", "1.5", "0.25", "0.3"))
            if match[1] == "f"
            else str(rng.randint(1, 3))
        )

    return re.sub(r"@(dims|dim|f|k)", drawn, text)
