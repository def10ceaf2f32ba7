"""The cold start: it teaches, it can be killed anywhere, and it leaves a policy that opens."""

import pytest
import torch

from kernel_core.config import ColdStartConfig, PolicyConfig
from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import ConfigError
from kernel_core.learn import decoder_layers as layers
from kernel_core.learn.batch import collate
from kernel_core.learn.cold_start.dataset import Conversation
from kernel_core.learn.cold_start.passes import Passes
from kernel_core.learn.cold_start.rows import HELD_BACK_AT_MOST, held_back, subject
from kernel_core.learn.cold_start.sft import cold_start, encode, starting_policy
from kernel_core.learn.cold_start.updater import TorchUpdater
from kernel_core.learn.loss import token_logprobs
from kernel_core.learn.update import new_optimiser
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

POLICY = PolicyConfig(model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=400, max_context=256)
CONFIG = ColdStartConfig(steps=16, batch_tokens=512, lr=3e-3, warmup=2)


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def made_up_conversations(count=120):
    """A lookup that can be learned: which constant belongs to which word."""
    words = ["relu", "gelu", "tanh", "silu"]
    return [
        Conversation(
            problem_id=f"made-up/{index}",
            kind="first",
            grade="fused",
            messages=(
                {"role": "user", "content": f"# problem {index}\n{words[index % 4]}\n# write ModelNew"},
            ),
            answer=format_completion(f"{words[index % 4]} it", f"x = {index % 4}\n"),
        )
        for index in range(count)
    ]


def fresh(conversations):
    return starting_policy(POLICY, conversations, seed=0)


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def rows_of(store):
    rows = list(store.lines("metrics.jsonl"))
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


@pytest.fixture(scope="module")
def conversations():
    return made_up_conversations()


@pytest.fixture(scope="module")
def undisturbed(conversations, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    policy = fresh(conversations)
    report = cold_start(policy, conversations, CONFIG, store)
    return store, policy, report


def test_the_loss_falls(undisturbed):
    store, _, report = undisturbed
    losses = [row["held_back_loss"] for row in store.lines("metrics.jsonl")]
    assert losses[-1] < 0.8 * losses[0]
    assert report.loss == pytest.approx(losses[-1], rel=1e-5)


def test_the_taught_policy_opens_from_its_folder(undisturbed):
    store, policy, _ = undisturbed
    opened = TorchPolicy.load(store.root, POLICY)
    assert torch.equal(weights_of(opened), weights_of(policy))
    assert opened.version == policy.version
    assert opened.version.startswith("cold-start-")
    assert not store.exists("checkpoints")


def test_rows_are_what_the_policy_reads_and_writes_in_a_rollout(conversations):
    policy = fresh(conversations)
    for conversation, row in zip(conversations, encode(policy, conversations), strict=True):
        assert row.prompt_ids.tolist() == policy.encode_messages(conversation.messages).tolist()
        assert row.answer_ids.tolist() == policy.encode_completion(conversation.answer).tolist()


WRONG, REPAIRED = "x = 0\n", "x = 3\n"


def repairs():
    """Second turns: a wrong answer, the judge's words, and the repaired answer that is taught."""
    return [
        Conversation(
            problem_id=f"made-up/{index}",
            kind="repair",
            grade="fused",
            messages=(
                {"role": "user", "content": f"# problem {index}\n# write ModelNew"},
                {"role": "assistant", "content": format_completion("", WRONG)},
                {"role": "user", "content": "# result\nwrong"},
            ),
            answer=format_completion("repaired", REPAIRED),
        )
        for index in range(5)
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_no_token_of_a_wrong_answer_has_weight(packed):
    policy = fresh(repairs())
    rows = encode(policy, repairs())
    answer_nats, read_nats = 0.0, 0.0
    for row in rows:
        start = len(row.prompt_ids)
        assert WRONG.strip() in policy.tokenizer.decode(row.prompt_ids)
        assert WRONG.strip() not in policy.tokenizer.decode(row.answer_ids)
        ids = torch.tensor([[*row.prompt_ids, *row.answer_ids]])
        with torch.no_grad():
            nats = -policy.model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        answer_nats += float(nats[start - 1 :].sum())
        read_nats += float(nats[: start - 1].sum())
    assert read_nats > 1.0
    passes = Passes(policy, minibatch_tokens=512, packed=packed)
    with passes.prepared(), torch.no_grad():
        learned = sum(float(loss) for loss, _ in passes.losses(rows))
    assert learned == pytest.approx(answer_nats, rel=1e-4)


@pytest.mark.parametrize("opening", ["<think>\n", "<think>"])
def test_thoughts_that_the_template_opens_are_not_opened_again(conversations, opening):
    policy = fresh(conversations)
    asks = "{% if add_generation_prompt %}"
    template = policy.tokenizer.chat_template
    assert asks in template
    opened = "{{ '" + opening.replace("\n", "\\n") + "' if enable_thinking | default(true) else '' }}"
    policy.tokenizer.chat_template = template + opened
    row = encode(policy, conversations)[0]
    whole = policy.tokenizer.decode([*row.prompt_ids, *row.answer_ids])
    assert conversations[0].answer in whole and whole.count("<think>") == 1
    assert row.prompt_ids.tolist() == policy.encode_messages(conversations[0].messages).tolist()

    policy.config = policy.config.model_copy(update={"enable_thinking": False})
    row = encode(policy, conversations)[0]
    assert row.answer_ids.tolist() == policy.encode_completion(conversations[0].answer).tolist()


@pytest.mark.parametrize("killed_at", [pytest.param(1, marks=pytest.mark.exhaustive), 7])
def test_a_killed_cold_start_goes_on_bit_for_bit(undisturbed, conversations, tmp_path, killed_at):
    def killer(label, done, total):
        if done == killed_at:
            raise Killed

    store = Store(tmp_path)
    with pytest.raises(Killed):
        cold_start(fresh(conversations), conversations, CONFIG, store, killer)
    policy = fresh(conversations)
    torch.manual_seed(999)
    report = cold_start(policy, conversations, CONFIG, store)

    expected_store, expected_policy, expected_report = undisturbed
    assert torch.equal(weights_of(policy), weights_of(expected_policy))
    assert rows_of(store) == rows_of(expected_store)
    assert report.model_dump(exclude={"seconds"}) == expected_report.model_dump(exclude={"seconds"})


@pytest.mark.parametrize(("minutes", "num_saved"), [(1e-9, CONFIG.steps - 1), (60.0, 0)])
def test_checkpoints_by_minutes_change_no_weights(undisturbed, conversations, tmp_path, minutes, num_saved):
    store, seen = Store(tmp_path), set()

    def look(label, done, total):
        seen.update(store.names("checkpoints"))

    policy = fresh(conversations)
    cold_start(policy, conversations, CONFIG.model_copy(update={"checkpoint_minutes": minutes}), store, look)
    steps = {name for name in seen if name.startswith("step-")}
    assert len(steps) == num_saved
    assert torch.equal(weights_of(policy), weights_of(undisturbed[1]))
    assert policy.version == undisturbed[1].version


def test_a_checkpoint_says_nothing_of_packing(conversations, tmp_path):
    def killer(label, done, total):
        if done == 7:
            raise Killed

    with pytest.raises(Killed):
        cold_start(fresh(conversations), conversations, CONFIG, Store(tmp_path), killer)
    files = list(tmp_path.rglob("config.json"))
    assert files and not any("packed" in file.read_text() for file in files)


def test_a_finished_cold_start_is_not_run_again(undisturbed, conversations):
    store, policy, report = undisturbed
    again = fresh(conversations)
    assert cold_start(again, conversations, CONFIG, store) == report
    assert torch.equal(weights_of(again), weights_of(policy))


def test_a_limit_of_minutes_ends_it(conversations, tmp_path):
    config = CONFIG.model_copy(update={"steps": 100_000, "minutes": 0.01})
    report = cold_start(fresh(conversations), conversations, config, Store(tmp_path))
    assert 0 < report.steps < 1000


def test_what_does_not_fit_the_context_is_left_out_and_counted(conversations, tmp_path):
    long = conversations[0].model_copy(update={"answer": "x = 1\n" * 400})
    config = CONFIG.model_copy(update={"steps": 1})
    report = cold_start(fresh(conversations), [*conversations, long], config, Store(tmp_path))
    assert (report.num_conversations, report.num_too_long) == (len(conversations), 1)


def test_nothing_that_fits_the_context_is_the_callers_mistake(conversations, tmp_path):
    policy = fresh(conversations)
    policy.config = policy.config.model_copy(update={"max_context": 8})
    with pytest.raises(ConfigError, match="no conversation fits"):
        cold_start(policy, conversations, CONFIG, Store(tmp_path))


def test_problems_are_held_back_with_all_their_conversations():
    subjects = [f"p{index % 300}" for index in range(3000)]
    out, measuring = held_back(subjects)
    gone = {subjects[index] for index in out}
    assert len(gone) == 6 and out == {i for i, name in enumerate(subjects) if name in gone}
    assert set(measuring) == out and {subjects[index] for index in measuring[:6]} == gone
    out, measuring = held_back([f"p{index % 20_000}" for index in range(40_000)])
    assert len(out) == 2 * HELD_BACK_AT_MOST and len(set(measuring)) == HELD_BACK_AT_MOST
    assert held_back(["one problem"] * 3000) == (set(), [])


def test_chats_are_about_what_they_begin_with():
    def chat(name, *contents):
        roles = ("user", "assistant")
        messages = tuple({"role": roles[i % 2], "content": text} for i, text in enumerate(contents))
        return Conversation(problem_id=name, kind="given", grade="", messages=messages, answer="x")

    assert subject(chat("a:1", "q?")) == subject(chat("b:7", "q?")) == subject(chat("a:1", "q?", "a", "r?"))
    assert subject(chat("a:1", "q?")) != subject(chat("a:1", "r?"))


def test_the_report_says_how_many_conversations_measure_the_loss(undisturbed, conversations, tmp_path):
    assert undisturbed[2].num_held_back == 2
    same = [one.model_copy(update={"problem_id": "one"}) for one in conversations]
    report = cold_start(fresh(same), same, CONFIG.model_copy(update={"steps": 1}), Store(tmp_path))
    assert report.num_held_back == 0


def test_the_held_back_loss_is_measured_without_dropout(conversations, tmp_path):
    policy = fresh(conversations)
    for layer in policy.model.model.layers:
        layer.mlp.down_proj = torch.nn.Sequential(layer.mlp.down_proj, torch.nn.Dropout(0.5))
    store = Store(tmp_path)
    cold_start(policy, conversations, CONFIG.model_copy(update={"lr": 1e-12, "steps": 3}), store)
    losses = [row["held_back_loss"] for row in store.lines("metrics.jsonl")]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


def with_a_window(policy):
    """A model that cannot read packed rows; the window is wider than any row."""
    for layer in policy.model.model.layers:
        layer.self_attn.sliding_window = 4096
    return policy


def test_an_update_may_be_read_in_parts(undisturbed, conversations, tmp_path):
    policy = fresh(conversations)
    report = cold_start(policy, conversations, CONFIG, Store(tmp_path), minibatch_tokens=200)
    torch.testing.assert_close(weights_of(policy), weights_of(undisturbed[1]), atol=2e-4, rtol=1e-3)
    whole = undisturbed[2]
    assert report.num_tokens == whole.num_tokens
    assert report.num_padding == whole.num_padding == 0


def test_a_model_that_cannot_read_packed_rows_learns_from_padded_ones(conversations, tmp_path, caplog):
    caplog.set_level("INFO")
    reports = []
    for name, tokens in (("whole", None), ("parts", 200)):
        policy = with_a_window(fresh(conversations))
        reports.append(
            cold_start(policy, conversations, CONFIG, Store(tmp_path / name), minibatch_tokens=tokens)
        )
    whole, parts = reports
    assert "rows are padded" in caplog.text
    assert 0 < whole.num_padding < whole.num_tokens and parts.num_padding <= whole.num_padding
    assert parts.num_tokens - parts.num_padding == whole.num_tokens - whole.num_padding
    losses = [row["loss"] for row in Store(tmp_path / "whole").lines("metrics.jsonl")]
    assert losses[-1] < losses[0]


def test_activations_are_computed_again_where_wanted(undisturbed, conversations, tmp_path, monkeypatch):
    calls = []
    real = layers.checkpoint
    monkeypatch.setattr(layers, "checkpoint", lambda *a, **k: (calls.append(1), real(*a, **k))[1])
    policy = fresh(conversations)
    policy.config = policy.config.model_copy(update={"gradient_checkpointing": True})
    cold_start(policy, conversations, CONFIG, Store(tmp_path))
    assert len(calls) >= CONFIG.steps
    torch.testing.assert_close(weights_of(policy), weights_of(undisturbed[1]), atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_arithmetic_is_that_of_the_policy(conversations, tmp_path, dtype):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    config = POLICY.model_copy(update={"device": "cuda", "dtype": dtype})
    policy = starting_policy(config, conversations, seed=0)
    seen = set()
    policy.model.model.layers[0].mlp.register_forward_hook(lambda *args: seen.add(args[-1].dtype))
    cold_start(policy, conversations, CONFIG.model_copy(update={"steps": 1}), Store(tmp_path))
    assert seen == {getattr(torch, dtype)}


def test_other_texts_are_another_version(conversations, tmp_path):
    config = CONFIG.model_copy(update={"steps": 1})
    versions = []
    for name, word in (("a", "x = 1"), ("b", "x = 2"), ("c", "x = 1")):
        policy = fresh(conversations)
        others = [one.model_copy(update={"answer": f"{word} # {one.problem_id}"}) for one in conversations]
        cold_start(policy, others, config, Store(tmp_path / name))
        versions.append(policy.version)
    assert versions[0] == versions[2] != versions[1]


@pytest.mark.exhaustive
def test_a_loss_floor_keeps_entropy_and_the_loss_is_reported_as_it_is():
    nats = {}
    for floor in (0.0, 0.3):
        policy = fresh(repairs())
        rows = encode(policy, repairs()[:2])
        updater = TorchUpdater(
            Passes(policy, 512, packed=True, floor=floor), new_optimiser(policy.model, 1e-2)
        )
        with updater.training():
            for _ in range(60):
                updater.update(rows, 1e-2)
        batch = collate(rows, 0, "cpu")
        with torch.no_grad():
            logprobs, entropy = token_logprobs(batch.logits(policy.model), batch.targets_B_C, 1.0)
        mask = batch.mask_B_C.bool()
        assert updater.loss(rows) == pytest.approx(-float(logprobs[mask].mean()), rel=1e-3)
        nats[floor] = float(entropy[mask].mean())
    assert nats[0.3] > 2 * nats[0.0], nats
