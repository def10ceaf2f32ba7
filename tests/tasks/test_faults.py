"""Only what may pass by itself is tried again."""

import pytest
from prefect.states import Failed

from kernel_core.errors import ConfigError, Corrupt, GymUnavailable, NotFound, SourceUnavailable, StoreFault
from tasks.faults import may_pass


@pytest.mark.parametrize("error", [GymUnavailable("x"), SourceUnavailable("x")])
def test_the_gyms_and_a_sources_faults_are_tried_again(error):
    assert may_pass(None, None, Failed(data=error))


@pytest.mark.parametrize("kind", [ConfigError, NotFound, Corrupt, StoreFault, ValueError])
def test_mistakes_damage_a_full_disk_and_bugs_are_not(kind):
    assert not may_pass(None, None, Failed(data=kind("x")))
