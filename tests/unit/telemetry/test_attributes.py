"""The names on spans and metrics."""

import pytest

from gaia.telemetry import attributes

NAMES = {name: value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)}
OTHERS = ("EXECUTE_TOOL", "TOOL_ERROR", "PROMPT_VARIABLE")
"""What is the value of an attribute, and the beginning of a name, which the package below has not yet."""
CONVENTIONS = {name: value for name, value in NAMES.items() if not value.startswith("gaia.") and name not in OTHERS}


def test_each_name_means_one_thing() -> None:
    assert len(set(NAMES.values())) == len(NAMES)


def test_ours_have_a_prefix_of_their_own() -> None:
    ours = {name: value for name, value in NAMES.items() if value.startswith("gaia.")}
    assert ours
    assert all(value.startswith("gaia.mcp.") for value in ours.values())


@pytest.mark.parametrize("name", sorted(CONVENTIONS))
def test_the_others_are_those_of_the_conventions(name: str) -> None:
    namespace = CONVENTIONS[name].partition(".")[0]
    # Releases from before these modules know fewer names.
    pytest.importorskip("opentelemetry.semconv._incubating.attributes.mcp_attributes")
    known = pytest.importorskip(f"opentelemetry.semconv._incubating.attributes.{namespace}_attributes")
    assert CONVENTIONS[name] in {value for value in vars(known).values() if isinstance(value, str)}


def test_a_server_error_is_no_fault_of_the_caller() -> None:
    assert {attributes.METHOD_NOT_FOUND, attributes.INVALID_PARAMS} <= attributes.CALLERS_FAULT
    assert -32603 not in attributes.CALLERS_FAULT
