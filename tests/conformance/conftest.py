"""What the tests that run the conformance suite share."""

import pytest


@pytest.fixture(autouse=True)
def authorities() -> None:
    """The system's: the suite is installed from the network."""
