"""Checkpoints: whole or absent, exact, pruned, and never trusted when damaged."""

from pathlib import Path

import pytest
import torch

from kernel_core.config import PolicyConfig
from kernel_core.errors import Corrupt
from kernel_core.learn import checkpoint
from kernel_core.learn.saver import Saver
from kernel_core.learn.update import new_optimiser
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.runs.holds import hold, release
from kernel_core.store import Store

POLICY = PolicyConfig(model="new", hidden_size=32, num_layers=1, num_heads=2, vocab_size=300)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def fresh(seed=0):
    policy = new_policy(POLICY, ["import triton\n"] * 3, seed=seed)
    return policy, new_optimiser(policy.model, lr=1e-2)


def train_a_little(policy, optimiser, steps=1):
    """Real gradients of a made-up loss; the random numbers show that their state is kept too."""
    for _ in range(steps):
        ids = torch.randint(0, 200, (2, 8))
        logits = policy.model(input_ids=ids).logits
        torch.autograd.backward(logits.square().mean())
        optimiser.step()
        optimiser.zero_grad()


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def save_steps(store, count, keep=3):
    torch.manual_seed(7)
    policy, optimiser = fresh()
    for step in range(1, count + 1):
        train_a_little(policy, optimiser)
        policy.set_version(f"v{step}")
        Saver(store, background=False).save(
            step, policy, optimiser, {"step": step, "notes": [1.5, "x"]}, keep
        )
    return policy, optimiser


def test_training_goes_on_bit_for_bit_from_a_checkpoint(store):
    policy, optimiser = save_steps(store, 2)
    train_a_little(policy, optimiser, steps=3)

    again, its_optimiser = fresh(seed=99)
    torch.manual_seed(12345)
    state = checkpoint.restore(store.child(checkpoint.newest(store)), again, its_optimiser)
    train_a_little(again, its_optimiser, steps=3)

    assert state == {"step": 2, "notes": [1.5, "x"]}
    assert again.version == "v2"
    assert torch.equal(weights_of(policy), weights_of(again))


def test_a_checkpoint_opens_like_any_saved_policy(store):
    policy, _ = save_steps(store, 1)
    opened = TorchPolicy.load(store.path(checkpoint.folder_of(1)), POLICY)
    assert torch.equal(weights_of(opened), weights_of(policy))
    assert opened.version == "v1"


def test_only_the_newest_are_kept_and_all_are_listed(store):
    save_steps(store, 5, keep=2)
    assert store.names("checkpoints") == ["latest.json", "step-000004", "step-000005"]
    assert store.read_json("checkpoints/latest.json")["step"] == 5
    listed = list(store.lines("checkpoints.jsonl"))
    assert [line["step"] for line in listed] == [1, 2, 3, 4, 5]
    assert listed[-1]["folder"] == "checkpoints/step-000005"


def test_a_checkpoint_that_is_held_stays_until_it_is_released(store):
    save_steps(store, 1, keep=1)
    hold(store, "checkpoints/step-000001")
    save_steps(store, 3, keep=1)
    assert store.child("checkpoints/step-000001").sealed()
    release(store, "checkpoints/step-000001")
    save_steps(store, 3, keep=1)
    assert not store.child("checkpoints/step-000001").exists()


def test_the_best_is_never_removed_and_ties_go_to_the_older(store):
    policy, optimiser = fresh()
    scores = {1: (0.2, 0.1), 2: (0.5, 0.0), 3: None, 4: (0.5, 0.0), 5: (0.4, 0.9)}
    for step, score in scores.items():
        policy.set_version(f"v{step}")
        Saver(store, background=False).save(step, policy, optimiser, {}, keep=1, score=score)
    assert store.read_json(checkpoint.BEST)["step"] == 2
    assert store.names("checkpoints") == ["best.json", "latest.json", "step-000002", "step-000005"]
    Saver(store, background=False).save(6, policy, optimiser, {}, keep=1, score=(0.5, 0.1))
    assert store.read_json(checkpoint.BEST)["policy_version"] == "v5"
    assert store.names("checkpoints") == ["best.json", "latest.json", "step-000006"]


def test_a_best_that_is_gone_or_of_the_future_is_forgotten(store):
    policy, optimiser = fresh()
    Saver(store, background=False).save(5, policy, optimiser, {}, keep=3, score=(0.9,))
    Saver(store, background=False).save(2, policy, optimiser, {}, keep=3, score=(0.1,))
    assert store.read_json(checkpoint.BEST)["step"] == 2


def test_what_is_saved_in_the_background_is_of_the_moment_it_was_asked_for(tmp_path):
    policy, optimiser = fresh()
    at_once, later = Store(tmp_path / "at_once"), Store(tmp_path / "later")
    saver, saver_at_once = Saver(later, background=True), Saver(at_once, background=False)
    for step in (1, 2, 3):
        train_a_little(policy, optimiser)
        saver_at_once.save(step, policy, optimiser, {"step": step}, keep=2, score=(step == 1,))
        saver.save(step, policy, optimiser, {"step": step}, keep=2, score=(step == 1,))
        train_a_little(policy, optimiser)
    saver.close()
    folders = [store.child(checkpoint.newest(store)) for store in (at_once, later)]
    first, second = (folder.open_sealed("policy").files for folder in folders)
    assert first == second
    trainers = [folder.child("trainer").open_sealed("trainer").files for folder in folders]
    assert trainers[0] == trainers[1]
    assert at_once.names("checkpoints") == later.names("checkpoints")


def test_what_goes_wrong_in_the_background_is_raised_once(store):
    policy, optimiser = fresh()
    saver = Saver(store, background=True)
    endless = []
    endless.append(endless)
    saver.save(1, policy, optimiser, {"endless": endless}, keep=1)
    with pytest.raises(ValueError, match="Circular"):
        saver.wait()
    assert checkpoint.newest(store) is None
    saver.save(2, policy, optimiser, {}, keep=1)
    saver.close()
    assert checkpoint.newest(store) == checkpoint.folder_of(2)


def test_nothing_in_a_checkpoint_is_a_pickle(store):
    save_steps(store, 1)
    names = [path.name for path in Path(store.path(checkpoint.folder_of(1))).rglob("*") if path.is_file()]
    assert {Path(name).suffix for name in names} <= {".json", ".safetensors", ".jinja", ".txt"}


@pytest.mark.parametrize(
    "damaged", ["model.safetensors", "trainer/optimiser.safetensors", "trainer/trainer.json"]
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(store, damaged, caplog):
    save_steps(store, 3)
    path = Path(store.path(f"{checkpoint.folder_of(3)}/{damaged}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert checkpoint.newest(store) == checkpoint.folder_of(2)
    assert "step-000003 is damaged" in caplog.text


def test_a_missing_file_is_damage_too(store):
    save_steps(store, 2)
    Path(store.path(f"{checkpoint.folder_of(2)}/model.safetensors")).unlink()
    assert checkpoint.newest(store) == checkpoint.folder_of(1)


def test_when_every_checkpoint_is_damaged_the_error_says_what_to_do(store):
    save_steps(store, 2)
    for step in (1, 2):
        Path(store.path(f"{checkpoint.folder_of(step)}/model.safetensors")).write_bytes(b"junk")
    with pytest.raises(Corrupt, match="remove that folder to train from the start"):
        checkpoint.newest(store)


def test_what_a_kill_left_unfinished_does_not_count_and_goes(store):
    save_steps(store, 1)
    store.write(f"{checkpoint.folder_of(2)}/model.safetensors", b"half")
    assert checkpoint.newest(store) == checkpoint.folder_of(1)
    assert not store.exists(checkpoint.folder_of(2))


def test_before_the_first_checkpoint_there_is_none(store):
    assert checkpoint.newest(store) is None


def test_a_remote_store_holds_checkpoints_as_well():
    store = Store("memory://checkpoint-test/run")
    policy, _ = save_steps(store, 2)
    again, its_optimiser = fresh(seed=99)
    checkpoint.restore(store.child(checkpoint.newest(store)), again, its_optimiser)
    assert torch.equal(weights_of(policy), weights_of(again))
    store.remove()
