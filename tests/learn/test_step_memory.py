"""Computed memory against the bytes of real tensors."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from step_memory import (
    GIB,
    QWEN,
    DecoderShape,
    StepWork,
    by_phase,
    cache_of_row,
    kept_by_layer,
    peak,
    rows_that_fit,
)
from transformers import AutoModelForCausalLM

from kernel_core.learn.update import new_optimiser

TINY = DecoderShape(64, 3, 4, 2, 160, 500, tied=True, head_dim=16)
ROWS, TOKENS = 2, 128
WORK = StepWork(minibatch_tokens=ROWS * TOKENS, row_tokens=TOKENS, answer_tokens=32, compute_bytes=4)


def model_of(shape):
    return AutoModelForCausalLM.from_config(shape.model_config())


def bytes_of(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@pytest.mark.parametrize("name", list(QWEN))
def test_weights_and_adapters_are_as_many_as_the_real_model_has(name):
    shape = replace(QWEN[name], layers=2)  # every layer is alike
    with torch.device("meta"):
        model = model_of(shape)
    assert sum(p.numel() for p in model.parameters()) == shape.total
    adapted = get_peft_model(model, LoraConfig(r=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == shape.adapters(32)


def test_weights_gradients_moments_and_cache_have_the_computed_bytes():
    model = model_of(TINY)
    parts = by_phase(TINY, WORK)["update"]
    ids = torch.randint(0, TINY.vocabulary, (ROWS, TOKENS))
    output = model(input_ids=ids, use_cache=True)
    output.logits.logsumexp(-1).sum().backward()
    assert bytes_of(model.parameters()) == parts["weights"]
    assert bytes_of(p.grad for p in model.parameters()) == parts["gradients"]
    optimiser = new_optimiser(model, 1e-3)
    optimiser.step()
    moments = [state[name] for state in optimiser.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert bytes_of(moments) == parts["moments"]
    cache = [tensor for layer in output.past_key_values.layers for tensor in (layer.keys, layer.values)]
    assert bytes_of(cache) == ROWS * cache_of_row(TINY, WORK)


def test_a_layer_keeps_about_the_computed_bytes_for_its_backward_pass():
    model, kept = model_of(TINY), {}
    hidden = torch.randn(ROWS, TOKENS, TINY.hidden, requires_grad=True)
    places = model.model.rotary_emb(hidden, torch.arange(TOKENS)[None])
    known = {t.untyped_storage().data_ptr() for t in (hidden, *places, *model.parameters())}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model.layers[0](hidden, position_embeddings=places)
    assert bytes_of(kept.values()) == pytest.approx(kept_by_layer(TINY, WORK), rel=0.1)


def test_shards_divide_and_the_sampler_stays_whole():
    one, four = (by_phase(QWEN["3B"], StepWork(n))["update"] for n in (1, 4))
    for part in ("weights", "moments", "gradients"):
        assert four[part] == pytest.approx(one[part] / 4, abs=4)
    assert four["sampler"] == 2 * QWEN["3B"].total and one["sampler"] == 0


def test_fewer_conversations_at_once_make_room():
    shape, work = QWEN["14B"], StepWork(2, lora_rank=32)
    assert peak(shape, work)[0] == "sample" and peak(shape, work)[1] > 79 * GIB
    rows = rows_that_fit(shape, work, 79 * GIB)
    assert 0 < rows < work.sampled_rows
    assert sum(by_phase(shape, StepWork(2, 32, sampled_rows=rows))["sample"].values()) < 79 * GIB
    assert rows_that_fit(QWEN["32B"], StepWork(1), 79 * GIB) == 0


def test_the_page_has_the_table_that_the_script_prints(monkeypatch, capsys):
    root = Path(__file__).parents[2]
    script = root / "benchmarks" / "what_fits.py"
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out.strip()
    assert printed and printed in (root / "docs" / "results" / "what_fits.md").read_text()
