"""Forms in which each operator of the table is called: a line each, with inputs and arguments.

A line has names, inputs and calls between bars. `x*` is a tensor of any shape, `y=x` one of the same shape,
`y~x` one that broadcasts with it; letters in brackets are kinds of `sizes.KINDS`, with a factor in front.
Behind `:` is what fills it. `@dim` is an axis of the first input, `@long` an axis of at least four elements:
`a` is its size, `r` half of it, and `y@q` is the first input's shape with `q` in its place, `y@` without it.
`@dims`, `@pair`, `@order` are several axes, two of them, and all of them in another order; `@before` are the
colons before the axis. `@f`, `@k` are a number with and without a fraction, `@resize` is another size or a
scale, `@bool` is True or False. `B`, `C`, `N` are the first, second and last size of the first input. Behind
`=>` is the part of the result that is taken.
"""

from __future__ import annotations

TABLE = """
# arithmetic
add sub mul div subtract divide multiply true_divide | x* y~x | x, y
add sub | x* y~x | x, y, alpha=@f
add sub mul div | x* | x, @f
rsub | x* y~x | x, y ; x, @f
div divide | x* y~x:pos | x, y, rounding_mode='floor' ; x, y, rounding_mode='trunc'
floor_divide remainder fmod | x* y~x:pos | x, y ; x, @f
pow | x*:pos y~x | x, y
pow | x* | x, 2 ; x, 3
pow | x*:pos | x, 0.5 ; x, -1 ; x, 1.7
float_power | x*:pos | x, 2.5 ; x, 0.5
clamp clip | x* | x, min=-0.5, max=0.8 ; x, 0.0, 1.0 ; x, min=0.1 ; x, max=0.5
clamp_min clamp_max | x* | x, @f
gelu | x* | x ; x, approximate='tanh'
logit | x*:rand | x ; x, eps=1e-6 ; x, eps=0.01
round | x* | x ; x, decimals=1 ; x, decimals=2
nan_to_num | x* | x ; x, nan=@f ; x, nan=0.0, posinf=1.0, neginf=-1.0
addcmul addcdiv | x* y~x z~x:pos | x, y, z ; x, y, z, value=@f
lerp | x* y~x z~x:rand | x, y, z
lerp | x* y~x | x, y, @f
where | m*:bool x~m y~m | m, x, y
where | m*:bool x~m | m, x, 0.0 ; m, @f, x
masked_fill | x* m~x:bool | x, m, @f ; x, m, 0.0 ; x, m, float('-inf') ; x, m, value=-1.0
eq ne not_equal | x*:whole y~x:whole | x, y
eq ne not_equal | x*:whole | x, 1
logical_and logical_or logical_xor | x*:bool y~x:bool | x, y
logical_not | x*:bool | x
isnan | x*:nans | x
isinf isfinite isposinf isneginf | x*:infs | x
floor ceil trunc fix frac | x*:wide | x
sign sgn | x*:normal | x
heaviside | x*:normal y~x:rand | x, y
isclose | x*:whole y~x:whole | x, y
isclose | x* y=x | x, y, rtol=0.1, atol=0.05
logsigmoid | x* | x
prelu | x(bchw) w(c):param | x, w
glu | x(b2n) | x ; x, dim=-1 ; x, dim=1
glu | x(b2chw) | x, dim=1
rrelu | x* | x, training=False
mvlgamma | x*:above | x, 2 ; x, 3
float half bfloat16 | x* | x
int long | x*:wide | x
bool | x*:whole | x
to | x* | x, torch.float16 ; x, torch.int32 ; x, dtype=torch.float64
dropout | x* | x, p=0.2, training=False

# reduction
sum mean nansum | x* | x ; x, dim=@dim ; x, dim=@dim ; x, @dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
amax amin | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
max min | x* | x ; x, dim=@dim => [0] ; x, @dim => .values ; x, dim=@dim, keepdim=True => [0] ; x, dim=@dim => .indices
argmax argmin | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x
prod | x(mn):near | x, dim=@dim ; x, @dim, keepdim=True
prod | x(bsn):near | x, dim=@dim ; x, 1 ; x, dim=2, keepdim=True
any | x*:rare | x, dim=@dim ; x, dim=@dim, keepdim=True ; x
all | x*:often | x, dim=@dim ; x, dim=@dim, keepdim=True ; x
count_nonzero | x*:whole | x ; x, dim=@dim
var std | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dim, unbiased=False ; x, dim=@dims, correction=0 ; x
var_mean std_mean | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dim, unbiased=False
aminmax | x* | x, dim=@dim ; x
logsumexp | x* | x, dim=@dim ; x, dim=@dim, keepdim=True ; x, dim=@dims
norm vector_norm | x* | x, dim=@dim ; x ; x, dim=@dim, keepdim=True ; x, 1, dim=@dim ; x, float('inf'), dim=@dim ; x, 3, dim=@dim
norm | x(mn) | x, 'fro' ; x, 2, 1 ; x, 1, -1, True
diff trapezoid | x* | x ; x, dim=@dim
dist | x* y=x | x, y ; x, y, 1

# softmax
softmax log_softmax softmin | x* | x, dim=@dim ; x, @dim ; x, -1

# norm
normalize | x* | x, dim=@dim ; x, p=1, dim=@dim ; x, dim=-1, eps=1e-6
layer_norm | x(bsn) w(n):param b(n):param | x, (N,), w, b ; x, (N,), w, b, 1e-6
layer_norm | x(mn) | x, (N,) ; x, (N,), eps=1e-6
rms_norm | x(bsn) w(n):param | x, (N,), w ; x, (N,), w, 1e-6
rms_norm | x(mn) | x, (N,) ; x, (N,), eps=1e-5
group_norm | x(bchw) w(c):param b(c):param | x, 4, w, b ; x, 2, w, b, eps=1e-6
group_norm | x(bcl) | x, 4 ; x, num_groups=2
group_norm | x(bc) | x, 4
group_norm | x(bcdhw) w(c):param b(c):param | x, 4, w, b ; x, 2
instance_norm | x(bchw) w(c):param b(c):param | x, weight=w, bias=b ; x, weight=w, bias=b, eps=1e-4
instance_norm | x(bcl) | x
batch_norm | x(bchw) m(c):buffer v(c):var w(c):param b(c):param | x, m, v, w, b ; x, m, v, w, b, training=False, eps=1e-3
batch_norm | x(mn) m(n):buffer v(n):var | x, m, v
batch_norm | x(bchw) w(c):param b(c):param | x, None, None, w, b, training=True ; x, None, None, training=True
local_response_norm | x(bchw) | x, 5 ; x, size=3, alpha=0.001, beta=0.75

# loss
mse_loss l1_loss smooth_l1_loss huber_loss | x* y=x | x, y ; x, y, reduction='sum' ; x, y, reduction='none'
smooth_l1_loss | x* y=x | x, y, beta=0.5
huber_loss | x* y=x | x, y, delta=0.5 ; x, y, delta=2.0, reduction='sum'
binary_cross_entropy | x*:rand y=x:rand | x, y ; x, y, reduction='sum'
binary_cross_entropy_with_logits | x* y=x:rand | x, y ; x, y, reduction='sum' ; x, y, reduction='none'
kl_div | x(mn):prob y=x:prob | x.log(), y, reduction='batchmean' ; torch.log(x), y, reduction='batchmean' ; torch.log(x), y, reduction='sum'
kl_div | x(mn):logp y=x:prob | x, y, reduction='batchmean' ; x, y, reduction='sum' ; x, y, reduction='none'
soft_margin_loss | x* y=x:sign | x, y ; x, y, reduction='sum'
hinge_embedding_loss | x* y=x:sign | x, y ; x, y, margin=0.5
margin_ranking_loss | x(z) y=x t=x:sign | x, y, t ; x, y, t, margin=0.3
poisson_nll_loss | x* y=x:rand | x, y ; x, y, reduction='sum'
gaussian_nll_loss | x* y=x v=x:pos | x, y, v ; x, y, v, reduction='sum'
cosine_embedding_loss | x(mn) y=x t(m):sign | x, y, t ; x, y, t, margin=0.2
triplet_margin_loss | x(mn) y=x z=x | x, y, z ; x, y, z, margin=0.5
cross_entropy | x(mv) t(m):below(v) | x, t ; x, t, reduction='sum' ; x, t, reduction='none'
cross_entropy | x(mv) t(m):below(v) | x, t, label_smoothing=0.1
cross_entropy | x(mv) y=x:prob | x, y ; x, y, reduction='sum'
cross_entropy | x(bvs) t(bs):below(v) | x, t ; x, t, reduction='none'
nll_loss | x(mv):logp t(m):below(v) | x, t ; x, t, reduction='sum'
cosine_similarity | x(mn) y=x | x, y ; x, y, dim=-1 ; x, y, dim=1
cosine_similarity | x(bchw) y=x | x, y, dim=1
pairwise_distance | x(mn) y=x | x, y ; x, y, p=1 ; x, y, keepdim=True
cdist | x(mk) y(ok) | x, y ; x, y, p=1
cdist | x(bmk) y(bok) | x, y

# layout
permute | x* | x, @order
permute | x(bchw) | x, (0, 2, 3, 1) ; x, (0, 3, 1, 2)
transpose swapaxes swapdims movedim moveaxis | x* | x, @pair
t adjoint | x(mn) | x
flip | x* | x, [@dim] ; x, dims=(@dim,) ; x, dims=@dims
fliplr flipud | x(mn) | x
rot90 | x(mn) | x, 1, (0, 1) ; x, k=2, dims=(0, 1)
rot90 | x(bchw) | x, 1, (2, 3) ; x, -1, dims=(2, 3)
roll | x* | x, @k, @dim ; x, shifts=-@k, dims=@dim
roll | x(mn) | x, shifts=(1, 2), dims=(0, 1)
roll | x(bchw) | x, (1, -1), (2, 3)
repeat | x(mn) | x, 1, 2 ; x, 2, 3
tile | x(mn) | x, (2, 1) ; x, (1, 3)
repeat_interleave | x* | x, 2, dim=@dim ; x, @k, @dim
cat concat concatenate | x* y@q | [x, y], dim=@dim ; (x, y), @dim ; [x, y, x], dim=@dim
cat concat concatenate | x(bchw) y(bphw) | [x, y], dim=1 ; (x, y), 1
stack | x* y=x | [x, y] ; [x, y], dim=@dim ; (x, y), dim=-1
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
unfold | x(bchw) | x, 3 ; x, kernel_size=2, stride=2 ; x, 3, padding=1
reshape | x(bsn) | x, (-1, N) ; x, (-1,)
squeeze | x(m1n) | x, 1 ; x
ravel | x(bsn) | x
expand | x(1n) | x, 4, -1 ; x, 8, -1
kron | x(bd) y(ee) | x, y
unsqueeze | x* | x, @dim ; x, dim=@dim ; x, -1
flatten | x(bchw) | x, 1 ; x, start_dim=2 ; x
narrow | x* | x, @long, 1, 3 ; x, dim=@long, start=0, length=4
select | x* | x, @dim, 0 ; x, dim=@dim, index=-1 ; x, @long, 2
chunk | x* | x, 2, dim=@long => [0] ; x, 2, @long => [1]
chunk | x(m2n) | x, 2, dim=-1 ; x, 2, dim=1
split | x(m4) | x, 2, dim=1 ; x, 2, -1
unbind | x(mn2) | x, dim=2 ; x, -1
expand_as | x(1n) y(mn) | x, y
outer ger | x(m) y(n) | x, y
cross | x(m3) y=x | x, y, dim=1 ; x, y, dim=-1

# resampling
interpolate | x(bchw) | x, @resize ; x, @resize, mode='nearest' ; x, @resize, mode='nearest-exact'
interpolate | x(bchw) | x, @resize, mode='bilinear' ; x, @resize, mode='bilinear', align_corners=@bool ; x, @resize, mode='bilinear', align_corners=@bool ; x, @resize, mode='bicubic', align_corners=@bool
interpolate | x(bcl) | x, @resize ; x, @resize, mode='linear', align_corners=@bool
interpolate | x(bcdhw) | x, @resize ; x, @resize, mode='trilinear', align_corners=@bool
grid_sample | x(bchw) g(bhw2):grid | x, g, align_corners=False ; x, g, align_corners=True ; x, g, mode='nearest', align_corners=False ; x, g, padding_mode='border', align_corners=False
affine_grid | x(b23) | x, (B, 3, 8, 8), align_corners=@bool ; x, [B, 1, 24, 40], align_corners=@bool ; x, size=(B, 4, 7, 9), align_corners=@bool

# indexing
index_select | x* i(q):below(a) | x, @dim, i ; x, dim=@dim, index=i

index | x* i(q):below(a) | x, @before i
index | x* i(r):once(a) | x, @before i
index | x(mn) i(q):below(m) j(q):below(n) | x, i, j

index | x(bsn) i(q):below(b) j(q):below(s) | x, i, j

gather | x* i@q:below(a) | x, @dim, i ; x, dim=@dim, index=i
gather | x* i@r:below(a) | x, @dim, i
take_along_dim | x* i@q:below(a) | x, i, dim=@dim ; x, i, @dim
take | x(vn) i(q):below(v) | x, i

embedding | i(bs):below(v) w(vn):param | i, w
embedding | i(m):below(v) w(vn) | i, w
embedding | i(bse):below(v) w(vf):param | i, w

index_add | x* i(q):below(a) y@q | x, @dim, i, y ; x, dim=@dim, index=i, source=y ; x, @dim, i, y, alpha=@f
index_copy | x* i(r):once(a) y@r | x, @dim, i, y ; x, dim=@dim, index=i, source=y
index_fill | x* i(q):below(a) | x, @dim, i, 0.0 ; x, @dim, i, @f
index_fill | x* i(r):once(a) | x, dim=@dim, index=i, value=0.0
index_reduce | x* i(q):below(a) y@q | x, @dim, i, y, 'amax' ; x, @dim, i, y, reduce='amin'
index_put | x(tn) i(q):once(t) y(qn) | x, (i,), y ; x, [i], y, accumulate=True
put | x(tn) i(q):once(t) y(q) | x, i, y ; x, i, y, accumulate=True
scatter | x* i@r:order y@r | x, @dim, i, y ; x, dim=@dim, index=i, src=y
scatter | x* i@r:below(a) | x, @dim, i, @f ; x, dim=@dim, index=i, value=1.0
scatter_add | x* i@q:below(a) y@q | x, @dim, i, y ; x, dim=@dim, index=i, src=y
scatter_reduce | x* i@q:below(a) y@q | x, @dim, i, y, 'amax' ; x, @dim, i, y, reduce='sum' ; x, dim=@dim, index=i, src=y, reduce='amin'
scatter_reduce | x* i@q:below(a) y@q | x, @dim, i, y, reduce='amax', include_self=False ; x, @dim, i, y, reduce='mean'
select_scatter | x* y@ | x, y, @dim, 0 ; x, y, dim=@dim, index=-1
slice_scatter | x* y@4 | x, y, @long, 0, 4 ; x, y, dim=@long, start=0, end=4
slice_scatter | x(mn) y(m4) | x, y, dim=1, start=2, end=6
one_hot | i(bs):seven | i, 7 ; i, num_classes=9

# order
sort | x(sb) | x, @dim => [0] ; x, dim=@dim, descending=True => .values
sort | x(bs) | x => [0] ; x, dim=-1 => .values ; x, descending=True => [0] ; x, dim=1, descending=True => .indices
argsort | x(bs) | x ; x, dim=-1, descending=True
argsort | x(sb) | x, @dim ; x, dim=@dim
msort | x(sb) | x
topk | x(bsd) | x, 3, dim=@long => [0] ; x, 2, @long, largest=False => .indices
topk | x(bs) | x, 3 => [0] ; x, k=@k, dim=-1 => .values ; x, 2, largest=False => [0] ; x, 3, dim=1 => .indices
kthvalue | x(sb) | x, 2, dim=@long => [0]
kthvalue | x(bs) | x, 3 => [0] ; x, k=2, dim=-1 => .values ; x, 2, dim=1, keepdim=True => [0]
median nanmedian | x(sb) | x, dim=@long => [0]
median nanmedian | x(bs) | x, dim=-1 => [0] ; x, dim=1, keepdim=True => .values
quantile nanquantile | x(sb) | x, 0.3, dim=@long
quantile nanquantile | x(bs) | x, 0.3, dim=-1 ; x, 0.5, dim=1, keepdim=True ; x, q=0.9, dim=-1

# product
matmul mm | x(mk) y(ko) | x, y
matmul bmm | x(bsk) y(bko) | x, y
matmul | x(bsk) y(ko) | x, y
matmul | x(besf) y(befs) | x, y
matmul | x(mk) y(k) | x, y
matmul | x(k) y(ko) | x, y
matmul | x(mm) y=x | x, y
matmul mm | x(km) y(ko) | x.T, y ; x.t(), y
matmul mm | x(mk) y(ok) | x, y.T ; x, y.t()
matmul mm | x(km) y(ok) | x.T, y.T ; x.t(), y.t()
matmul bmm | x(bks) y(bko) | x.mT, y ; x.transpose(1, 2), y
matmul bmm | x(bsk) y(bok) | x, y.mT ; x, y.transpose(1, 2) ; x, y.transpose(-2, -1)
matmul | x(besf) y(bemf) | x, y.mT ; x, y.transpose(-2, -1)
matmul | x(bsk) y(k) | x, y
matmul | x(sk) y(bko) | x, y
matmul | x(bhwk) y(ko) | x, y
tensordot | x(bsk) y(ko) | x, y, dims=1
vecdot | x(mn) y=x | x, y ; x, y, dim=-1
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
einsum | x(bhwk) y(ko) | 'bijl,lk->bijk', x, y ; 'bhwc,co->bhwo', x, y
einsum | x(bsk) y(ko) | 'bsk,ko->bso', x, y ; 'bij,jk->bik', x, y
einsum | x(m) y(n) | 'i,j->ij', x, y
einsum | x(mk) y(mk) | 'ij,ij->i', x, y ; 'bd,bd->b', x, y

# scan
cumsum | x* | x, dim=@dim ; x, @dim
cumprod | x(mn):near | x, dim=@dim
cumprod | x(bsn):near | x, dim=@dim
logcumsumexp | x* | x, dim=@dim ; x, @dim
cummax cummin | x* | x, dim=@dim => [0] ; x, dim=@dim => .values ; x, @dim => [1]

# pooling
max_pool2d | x(bchw) | x, 2 ; x, 2, return_indices=True ; x, 3, stride=2, padding=1 ; x, kernel_size=2, stride=2 ; x, (2, 3)
avg_pool2d | x(bchw) | x, 2 ; x, 3, stride=1, padding=1 ; x, kernel_size=2 ; x, kernel_size=3, stride=2
max_pool1d | x(bcl) | x, 2 ; x, kernel_size=3, stride=2 ; x, 4
avg_pool1d | x(bcl) | x, 2 ; x, kernel_size=4 ; x, 3, stride=1, padding=1
max_pool2d | x(bchw) | x, 3, ceil_mode=True ; x, 3, stride=1, padding=1, dilation=1 ; x, 2, dilation=2 ; x, kernel_size=3, stride=2, padding=1, return_indices=True
avg_pool2d | x(bchw) | x, 3, stride=2, padding=1, count_include_pad=False ; x, 3, ceil_mode=True ; x, (2, 4)
max_pool1d | x(bcl) | x, 3, stride=1, padding=1 ; x, 4, stride=2, dilation=2 ; x, 5, stride=1, padding=2, dilation=2 ; x, 3, dilation=3 ; x, 2, return_indices=True
avg_pool3d | x(bcdhw) | x, 3, stride=2, padding=1 ; x, (1, 2, 2) ; x, 3, stride=1, padding=1
max_pool3d | x(bcdhw) | x, 3, stride=2, padding=1 ; x, 2, return_indices=True ; x, 3, stride=2, padding=1, dilation=2
max_pool3d avg_pool3d | x(bcdhw) | x, 2 ; x, kernel_size=2, stride=2
adaptive_avg_pool2d adaptive_max_pool2d | x(bchw) | x, 1 ; x, (1, 1) ; x, 2 ; x, (2, 4)
adaptive_max_pool3d | x(bcdhw) | x, 1 ; x, 2
adaptive_avg_pool1d adaptive_max_pool1d | x(bcl) | x, 1 ; x, 4
adaptive_avg_pool3d | x(bcdhw) | x, 1 ; x, (1, 1, 1)
lp_pool1d | x(bcl) | x, 2, 2 ; x, norm_type=2, kernel_size=4
lp_pool2d | x(bchw) | x, 2, 2 ; x, 1, 2 ; x, 2, 3, 2
lp_pool3d | x(bcdhw) | x, 2, 2

# convolution
conv1d | x(bcl) w(pc3):param | x, w ; x, w, padding=1 ; x, w, stride=2 ; x, w, padding=2, dilation=2
conv2d | x(bchw) w(pc33):param b(p):param | x, w, b, padding=1 ; x, w, b ; x, w, b, stride=2, padding=1
conv2d | x(bchw) w(pc11):param | x, w ; x, w, stride=2
conv2d | x(bchw) w(pc35) b(p) | x, w, b, padding=(1, 2) ; x, w, b, stride=(1, 2), padding=(1, 2) ; x, w, b, dilation=(1, 2), padding=(1, 4)
conv2d | x(bchw) w(pc33) | x, w ; x, w, padding=1 ; x, w, padding='same'
conv3d | x(bcdhw) w(pc333):param | x, w, padding=1 ; x, w
conv_transpose1d | x(bcl) w(cp4):param | x, w, stride=2, padding=1 ; x, w
conv_transpose3d | x(bcdhw) w(cp222):param | x, w, stride=2 ; x, w
conv1d | x(bcl) w(c13):param | x, w, padding=1, groups=C
conv2d | x(bchw) w(c133):param | x, w, padding=1, groups=C
conv_transpose2d | x(bchw) w(cp33):param | x, w, padding=1 ; x, w, stride=2 ; x, w, stride=2, padding=1, output_padding=1
conv_transpose2d | x(bchw) w(cp33) b(p) | x, w, b ; x, w, b, stride=2, dilation=2

# attention
scaled_dot_product_attention | q(besf) k=q v=q | q, k, v ; q, k, v, is_causal=True ; q, k, v, scale=0.125
scaled_dot_product_attention | q(besf) k=q v=q m(ss) | q, k, v, attn_mask=m ; q, k, v, m
scaled_dot_product_attention | q(bsf) k=q v=q | q, k, v ; q, k, v, is_causal=True
"""  # noqa: E501
