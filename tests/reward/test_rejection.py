"""Profiling-based rejection: a table, and that what is unknown is not taken for zero."""

import pytest

from kernel_core.reward.rejection import keep_probability


@pytest.mark.parametrize(
    ("correct", "share", "published", "corrected"),
    [
        (True, 1.0, 1.0, 1.0),
        (True, 0.4, 1.0, 1.0),
        (True, 0.35, 0.5, 0.5),
        (True, 0.3, 0.0, 0.0),
        (True, 0.0, 0.0, 0.0),
        (True, None, 0.0, 1.0),
        (False, None, 1.0, 1.0),
        (False, 0.0, 1.0, 1.0),
    ],
)
def test_chance_of_staying_in_the_loss(correct, share, published, corrected):
    assert keep_probability(correct, share, "published") == pytest.approx(published)
    assert keep_probability(correct, share, "corrected") == pytest.approx(corrected)
    assert keep_probability(correct, share, "none") == 1.0
