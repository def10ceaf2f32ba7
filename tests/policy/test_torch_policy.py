"""Sampling is exact, repeatable and independent of the batch; policies survive being saved."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

from kernel_core.config import PolicyConfig, RolloutConfig, SamplingConfig
from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.policy import decode
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy, uniforms
from kernel_core.store import Store

TEXTS = [
    "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 12\n"
    * 5,
    "@triton.jit\ndef kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    offs = tl.arange(0, BLOCK)\n" * 5,
]
CONFIG = PolicyConfig(hidden_size=64, num_layers=2, num_heads=4, vocab_size=330, max_context=160)


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def policy() -> TorchPolicy:
    policy = new_policy(CONFIG, TEXTS, seed=3)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(2.0)  # a peaked distribution, so that mistakes in it show
    return policy


PROMPTS = [
    *[ask("write ModelNew for a sum over rows, please")] * 3,
    ask("write ModelNew for a sum over columns"),
    ask("write ModelNew for a sum over columns and then take the square root of it"),
    ask("x"),
]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_log_probabilities_equal_teacher_forced_ones(policy, temperature):
    for sample in policy.sample(PROMPTS, temperature=temperature, max_new_tokens=40, seed=1):
        again = policy.logprobs(sample.prompt_ids, sample.token_ids, temperature)
        np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)


def test_the_same_arguments_give_the_same_samples_bit_for_bit(policy):
    first, second = (policy.sample(PROMPTS, temperature=1.0, max_new_tokens=30, seed=7) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.token_ids.tobytes() == b.token_ids.tobytes()
        assert a.logprobs.tobytes() == b.logprobs.tobytes()


def test_what_a_row_draws_does_not_depend_on_its_company(policy):
    seeds = [11, 12, 13, 14, 15, 16]
    together = policy.sample(PROMPTS, temperature=1.0, max_new_tokens=30, seed=seeds)
    for row in range(len(PROMPTS)):
        [alone] = policy.sample([PROMPTS[row]], temperature=1.0, max_new_tokens=30, seed=[seeds[row]])
        assert alone.token_ids.tolist() == together[row].token_ids.tolist()


def test_rows_of_one_prompt_differ_and_greedy_ones_do_not(policy):
    drawn = policy.sample(PROMPTS[:3], temperature=1.0, max_new_tokens=20, seed=0)
    assert len({sample.text for sample in drawn}) == 3
    greedy = policy.sample(PROMPTS[:3], temperature=0.0, max_new_tokens=20, seed=0)
    assert len({sample.text for sample in greedy}) == 1


def test_greedy_sampling_is_what_transformers_generates(policy):
    for prompt in (PROMPTS[0], PROMPTS[4]):
        [sample] = policy.sample([prompt], temperature=0.0, max_new_tokens=25, seed=0)
        ids = torch.from_numpy(policy.encode_messages(prompt).astype(np.int64))[None]
        generated = policy.model.generate(ids, do_sample=False, max_new_tokens=25, pad_token_id=0)
        assert generated[0, ids.shape[1] :].tolist() == sample.token_ids.tolist()


def test_an_answer_stops_after_its_end_token_or_at_the_limit(policy):
    samples = policy.sample(PROMPTS * 4, temperature=1.5, max_new_tokens=60, seed=2)
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}
    for sample in samples:
        ends = np.isin(sample.token_ids, policy.end_ids)
        assert not ends[:-1].any()
        assert ends[-1] == (sample.finish_reason == "stop")
        assert len(sample.token_ids) == 60 or ends[-1]
        assert len(sample.token_ids) == len(sample.logprobs)


def test_prompt_and_answer_share_the_context(policy):
    nearly_full = ask("x" * (CONFIG.max_context - 8))
    too_long = ask("x" * CONFIG.max_context)
    near, far, usual = policy.sample(
        [nearly_full, too_long, PROMPTS[0]], temperature=0.0, max_new_tokens=50, seed=0
    )
    assert len(near.prompt_ids) + len(near.token_ids) <= CONFIG.max_context
    assert (far.finish_reason, len(far.token_ids), far.text) == ("error", 0, "")
    assert (
        usual.token_ids.tolist()
        == policy.sample([PROMPTS[0]], temperature=0.0, max_new_tokens=50, seed=0)[0].token_ids.tolist()
    )


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=6), st.floats(0.3, 2.0))
@settings(max_examples=25, deadline=None)
def test_drawing_inverts_the_cumulative_distribution(logits, temperature):
    probabilities = torch.softmax(torch.tensor(logits, dtype=torch.float64) / temperature, dim=0)
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    tokens, logprobs = decode.draw(torch.tensor([logits]).expand(4000, -1), temperature, grid)
    shares = torch.bincount(tokens, minlength=len(logits)) / 4000
    torch.testing.assert_close(shares.double(), probabilities, atol=1e-3, rtol=0)
    torch.testing.assert_close(logprobs.double(), probabilities.log()[tokens], atol=1e-4, rtol=0)


def test_a_token_that_is_impossible_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, -1)
    tokens, _ = decode.draw(logits, 1.0, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 1, 1]


def test_random_numbers_belong_to_seed_and_row():
    assert uniforms(5, [0, 3], 4)[1].tolist() == uniforms(5, [3], 9)[0, :4].tolist()
    assert uniforms([5, 6], [0, 1], 4).tolist() != uniforms([5, 5], [0, 1], 4).tolist()
    assert uniforms(5, [0], 4).tolist() != uniforms(5, [1], 4).tolist()


def test_a_saved_policy_samples_the_same_after_loading(policy, tmp_path):
    policy.set_version("step-4")
    manifest = policy.save(str(tmp_path / "p"))
    assert not [name for name in manifest.files if name.endswith((".bin", ".pt", ".pkl"))]
    loaded = TorchPolicy.load(str(tmp_path / "p"), CONFIG)
    assert loaded.version == "step-4"
    before, after = (p.sample(PROMPTS, temperature=1.0, max_new_tokens=20, seed=5) for p in (policy, loaded))
    for a, b in zip(before, after, strict=True):
        assert a.logprobs.tobytes() == b.logprobs.tobytes()


def test_a_policy_can_be_part_of_a_larger_sealed_folder(policy, tmp_path):
    store = Store(tmp_path / "checkpoint")
    files = policy.write_files(store)
    files["optimiser.json"] = store.write_json("optimiser.json", {})
    store.seal("checkpoint", files, meta={})
    assert TorchPolicy.load(store, CONFIG).version == policy.version


def test_lora_adapters_are_saved_alone_and_put_back_on_their_model(policy, tmp_path):
    policy.save(str(tmp_path / "base"))
    config = CONFIG.model_copy(update={"lora_rank": 4})
    adapted = TorchPolicy.load(str(tmp_path / "base"), config)
    trained = [p for p in adapted.model.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) < 0.2 * sum(p.numel() for p in adapted.model.parameters())
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(0.05)
    adapted.save(str(tmp_path / "lora"))
    assert (tmp_path / "lora" / "adapters.safetensors").exists()
    assert not (tmp_path / "lora" / "model.safetensors").exists()
    loaded = TorchPolicy.load(str(tmp_path / "lora"), config)
    before, after, base = (
        p.sample(PROMPTS, temperature=1.0, max_new_tokens=20, seed=5) for p in (adapted, loaded, policy)
    )
    assert [s.token_ids.tolist() for s in before] == [s.token_ids.tolist() for s in after]
    assert [s.token_ids.tolist() for s in before] != [s.token_ids.tolist() for s in base]


def test_adapters_open_from_any_folder_and_refuse_other_weights_of_their_base(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy.save("base")
    config = CONFIG.model_copy(update={"lora_rank": 4})
    TorchPolicy.load("base", config).save("lora")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = TorchPolicy.load(str(tmp_path / "lora"), config)
    assert again.base.name == str(tmp_path / "base")
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.add_(0.01)
    policy.save(str(tmp_path / "base"))
    with pytest.raises(Corrupt, match="belong to other weights than"):
        TorchPolicy.load(str(tmp_path / "lora"), config)


def test_weights_can_be_shipped_in_half_the_bytes(policy, tmp_path):
    policy.save(str(tmp_path / "full"))
    policy.save(str(tmp_path / "half"), dtype=torch.bfloat16)
    full, half = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half"))
    assert half < 0.6 * full
    loaded = TorchPolicy.load(str(tmp_path / "half"), CONFIG)
    assert loaded.model.dtype == torch.float32


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "policy.json"])
def test_a_damaged_file_is_corrupt(policy, tmp_path, name):
    policy.save(str(tmp_path / "p"))
    file = tmp_path / "p" / name
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Corrupt, match=name):
        TorchPolicy.load(str(tmp_path / "p"), CONFIG)


def test_a_broken_folder_of_someone_elses_is_corrupt(policy, tmp_path):
    policy.save(str(tmp_path / "p"))
    (tmp_path / "p" / "manifest.json").unlink()
    file = tmp_path / "p" / "model.safetensors"
    loaded = TorchPolicy.load(str(tmp_path / "p"), CONFIG)
    sizes = [[p.shape for p in its.model.parameters()] for its in (loaded, policy)]
    assert sizes[0] == sizes[1]
    file.write_bytes(b"not weights")
    with pytest.raises(Corrupt, match="no model that can be read"):
        TorchPolicy.load(str(tmp_path / "p"), CONFIG)


def test_a_folder_without_its_output_weights_is_corrupt(policy, tmp_path):
    """transformers only warns and draws them at random."""
    folder = tmp_path / "untied"
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    weights = {
        name: t for name, t in load_file(folder / "model.safetensors").items() if name != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(Corrupt, match=r"lm_head\.weight.*tie_word_embeddings"):
        TorchPolicy.load(str(folder), CONFIG)


def test_a_folder_that_is_not_there_or_empty_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="no model folder"):
        TorchPolicy.load(str(tmp_path / "nowhere"), CONFIG)
    with pytest.raises(NotFound, match=r"config\.json is missing"):
        TorchPolicy.load(str(tmp_path), CONFIG)


def test_a_hugging_face_name_without_the_hub_is_not_found_at_once(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NotFound, match="hub cannot be reached"):
        TorchPolicy.load("nobody/has-such-a-model", CONFIG)


SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL, num_key_value_heads=4, vocab_size=330),
        MistralConfig(**SMALL, num_key_value_heads=2, vocab_size=330, sliding_window=16),
        GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=330, n_positions=160),
    ],
    ids=lambda config: config.model_type,
)
def test_other_architectures_sample_exactly_too(policy, config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    other = TorchPolicy(model, policy.tokenizer, CONFIG, version="other")
    nearly_full = ask("x" * (CONFIG.max_context - 8))
    for sample in other.sample([nearly_full, *PROMPTS], temperature=1.0, max_new_tokens=30, seed=1):
        again = other.logprobs(sample.prompt_ids, sample.token_ids, 1.0)
        np.testing.assert_allclose(sample.logprobs, again, atol=1e-4)


def test_a_context_longer_than_the_models_table_of_positions_is_refused(policy):
    config = GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=330, n_positions=128)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ConfigError, match="but the model knows 128 positions"):
        TorchPolicy(model, policy.tokenizer, CONFIG, version="short")


@pytest.mark.parametrize("begins", [True, False])
def test_a_base_models_prompt_begins_as_its_tokenizer_begins_texts(policy, begins):
    tokenizer = copy.deepcopy(policy.tokenizer)
    tokenizer.chat_template = None
    tokenizer.bos_token = "<|system|>"
    if begins:
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<|system|> $A", special_tokens=[("<|system|>", tokenizer.bos_token_id)]
        )
    base = TorchPolicy(policy.model, tokenizer, CONFIG, version="base")
    ids = base.encode_messages(ask("hello"))
    assert (ids == tokenizer.bos_token_id).sum() == begins == (ids[0] == tokenizer.bos_token_id)
    assert "### assistant" in tokenizer.decode(ids)


def test_settings_that_leave_no_room_for_an_answer_are_refused(policy):
    fits = RolloutConfig(prompt_budget=100, sampling=SamplingConfig(max_new_tokens=60))
    policy.check(fits)
    with pytest.raises(ConfigError, match=r"101 and .* = 60 do not fit"):
        policy.check(fits.model_copy(update={"prompt_budget": 101}))


def test_thoughts_are_not_kept_where_the_chat_template_drops_them(policy):
    keep = RolloutConfig(thoughts="keep", prompt_budget=100, sampling=SamplingConfig(max_new_tokens=60))
    policy.check(keep)
    tokenizer = copy.deepcopy(policy.tokenizer)
    # As Qwen3's does with every turn but the last.
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message['content']", "message['content'].split('</think>')[-1]"
    )
    forgetful = TorchPolicy(policy.model, tokenizer, CONFIG, version="forgetful")
    with pytest.raises(ConfigError, match="drops the thoughts of earlier turns"):
        forgetful.check(keep)
    forgetful.check(keep.model_copy(update={"thoughts": "drop"}))
