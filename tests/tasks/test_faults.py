"""Only what may pass by itself is tried again."""

import pytest
from prefect.states import Failed

from kernel_core.errors import (
    ConfigError,
    Corrupt,
    GymUnavailable,
    NotFound,
    SourceUnavailable,
    StaleWeights,
    StoreFault,
    WorkersLost,
)
from tasks.faults import may_pass


@pytest.mark.parametrize("kind", [GymUnavailable, SourceUnavailable, StaleWeights, WorkersLost])
def test_the_gyms_a_sources_and_a_samplers_faults_are_tried_again(kind):
    assert may_pass(None, None, Failed(data=kind("x")))


@pytest.mark.parametrize("kind", [ConfigError, NotFound, Corrupt, StoreFault, ValueError])
def test_mistakes_damage_a_full_disk_and_bugs_are_not(kind):
    assert not may_pass(None, None, Failed(data=kind("x")))
