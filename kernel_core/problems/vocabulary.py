"""Words that name a problem's values: general ones of deep learning, taken from no benchmark."""

from __future__ import annotations

_LINES = (
    "a b c d e f g h m n p q r s t u v w x y z wq wk wv",
    "wo kv qk qkv xs ys hs dx dy dt vx vy fx fy lr mu nu xi pi phi psi tau rho eta",
    "zeta theta sigma kappa alpha beta gamma delta epsilon omega lam eps chi gx gy im re fm ff aux",
    "ctx cls emb enc dec att attn feat feats pos neg seq tok img sig vec mat arr buf buff tmp cur",
    "prev src tgt ref obs hid inp lhs rhs idx ids ind inds loc locs pred preds prob probs logit",
    "logits logp act acts grad grads coef coeff coeffs cos sin tan amp freq freqs ang rot rel abs_pos",
    "mom std stdev var avg cov corr cum num denom den quot prod diff dist dists sim sims dev res",
    "resid proj trans inv sq deg adj conn nbr nbrs nodes edges hyper lut tab vals query key value",
    "queries keys values head heads context memory history hidden state states hidden_states cell",
    "carry memory_bank cache slots slot token tokens token_ids input_ids position positions",
    "position_ids offset_map embedding embeddings embeds codebook codes code lookup table entries",
    "vocab sequence sequences segment segments segment_ids cu_seqlens lengths length image images",
    "pixels pixel frame frames video audio wave signal spectrum patch patches feature features",
    "feature_map fmap plane planes grid_map field score scores weight weights gate gates mask",
    "attention attn_scores prior posterior evidence likelihood energy potential entropy density mass",
    "charge velocity speed force torque pressure temperature volume area radius angle angles phase",
    "phases amplitude magnitude frequency period power noise drift target targets label labels",
    "prediction predictions truth teacher student anchor anchors positive negative sample samples",
    "example examples support source origin base left right upper lower inner outer front back first",
    "second third last previous current next_state before after other matrix vector tensor diagonal",
    "kernel filters basis factor factors operand scale scales shift shifts gain gains bias biases",
    "slope slopes offset offsets threshold limit bound bounds low high ratio rate rates decay",
    "momentum variance deviation mean means center centers centroid centroids cluster clusters",
    "group_ids batch_ids assign routing router expert experts residual skip shortcut branch trunk",
    "stem tail body main side path data inputs activation activations response responses reward",
    "rewards returns advantage policy action actions observation time_steps steps clock trace depth",
    "height_map normal normals points point vertices faces boxes box corners coords coordinates mesh",
    "graph node_feats edge_index edge_attr degree count counts total totals partial mixture mix blend",
    "delta_t beta_t style content latent latents prompt user item items rank price dose",
)
WORDS = tuple(word for line in _LINES for word in line.split())
"""Names of inputs, tables, parameters and of what is computed from them."""

RESULTS: tuple[str, ...] = (
    *("out", "output", "outputs", "y", "z", "o", "res", "result", "results", "dst", "dest", "ret", "c", "d"),
    *("outs", "final", "written", "hidden_out", "y_out", "x_out", "new", "next_x"),
)
"""Names of a tensor that a kernel writes."""

POINTERS: dict[str, int] = {
    "{}_ptr": 12,
    "{}_pointer": 2,
    "p_{}": 1,
    "ptr_{}": 1,
    "{}_p": 2,
    "{}_base": 1,
    "{}_data": 1,
    "{}_buf": 1,
    "{capital}": 2,
    "{upper}": 1,
    "{side}_ptr{number}": 2,
}
"""Conventions for a pointer's name with weights, one a problem; a side is `in` or `out`."""

LOCALS: dict[str, tuple[str, ...]] = {
    "offs": ("offs", "idx", "offsets", "offset", "index", "cols", "lane", "i", "pos", "at", "k"),
    "offsets": ("offs", "idx", "offsets", "cols", "lanes"),
    "acc": ("acc", "accum", "total", "s", "sums", "res", "tile"),
    "total": ("total", "acc", "s", "running", "sums"),
    "row": ("row", "r", "row_idx", "line", "pid", "i", "idx"),
    "cols": ("cols", "col", "offs", "columns", "lanes", "j"),
    "numel": ("numel", "n", "size", "count", "n_elements", "total", "length"),
    "pid": ("pid", "p", "prog", "block_id", "program"),
    "start": ("start", "begin", "first", "base", "lo"),
    "mean": ("mean", "mu", "avg", "center"),
    "rstd": ("rstd", "inv_std", "inv", "scale", "r"),
    "square": ("square", "sq", "squares", "ss"),
    "inside": ("inside", "valid", "ok", "keep", "in_range"),
    "grid": ("grid", "blocks", "launch", "shape", "programs"),
    "rows": ("rows", "num_rows", "count", "n_rows", "lines"),
}
"""Usual local names of kernels and hosts, and what else people call them."""

BLOCKS: tuple[str, ...] = ("BLOCK{}", "BLOCK_SIZE{}", "TILE{}", "BLK{}", "CHUNK{}", "BS{}")
"""Conventions for a block size; the place takes what follows in names such as `BLOCK_M`."""

KERNELS: tuple[str, ...] = ("{}_kernel", "_{}_kernel", "{}_fwd", "triton_{}", "{}_jit", "_{}")
"""Conventions for a kernel's name."""
