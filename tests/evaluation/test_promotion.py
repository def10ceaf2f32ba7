"""The gate decides by scorecards and copies checkpoints. `tests/flows/test_promote.py` has real policies."""

import pytest

from kernel_core.config import PolicyConfig
from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.promotion import decide, promote_checkpoint, promoted_policy
from kernel_core.policy import SHIPPED
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tests.evaluation.test_nightly import card


@pytest.mark.parametrize(
    ("before", "after", "passes", "said"),
    [
        ([0] * 24, [2] * 24, True, "clearly better: correct_rate 0.000 → 1.000"),
        ([1] * 24, [1] * 24, False, "not clearly better: correct_rate 0.500 → 0.500"),
        ([2] * 24, [0] * 24, False, "clearly worse: correct_rate 1.000 → 0.000"),
    ],
)
def test_only_a_checkpoint_that_is_clearly_better_passes(before, after, passes, said):
    decision = decide(compare(card(before), card(after)))
    assert decision.passes is passes
    assert decision.reason.startswith(said)


def test_a_checkpoint_that_passes_is_copied_and_found_by_the_name(tmp_path):
    name, trained = Run(str(tmp_path), "promoted"), Run(str(tmp_path), "trained")
    assert promoted_policy(name) is None
    there = trained.store.child("checkpoints/step-000007")
    Store(str(SHIPPED)).copy_sealed(there)
    folder = promote_checkpoint(name, there.path(), PolicyConfig(model="shipped"), {"from": "trained"})
    assert folder == name.store.path("checkpoints/step-000001")
    assert Store(folder).read("model.safetensors") == there.read("model.safetensors")
    assert promoted_policy(name) == PolicyConfig(model="shipped")
