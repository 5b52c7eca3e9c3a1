"""What the tests with injected faults share."""

import pytest

from tests.chaos.profile import Profile


@pytest.fixture(scope="session")
def chaos(pytestconfig: pytest.Config) -> Profile:
    """How many schedules are tried, and from which seed."""
    return Profile(pytestconfig.getoption("chaos_seed"), pytestconfig.getoption("chaos_examples"))
