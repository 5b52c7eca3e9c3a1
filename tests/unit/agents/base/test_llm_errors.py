"""The errors of a model are caught by the names of this package, or by the built-in ones that they are."""

from __future__ import annotations

import pytest

from gaia.agents.base.llm_errors import LLMError, LLMNotInstalled, LLMTimeout

ALL = [LLMError, *LLMError.__subclasses__()]


@pytest.mark.parametrize("kind", ALL)
def test_each_has_a_message_and_the_status_if_there_was_one(kind: type[LLMError]) -> None:
    assert isinstance(kind("why"), LLMError)
    assert (str(kind("why")), kind("why").status, kind("why").result) == ("why", None, None)
    assert kind("why", status=418).status == 418


def test_each_says_what_happened_by_its_class_alone() -> None:
    for one in ALL:
        assert [other for other in ALL if issubclass(other, one)] == (ALL if one is LLMError else [one])


@pytest.mark.parametrize(("kind", "builtin"), [(LLMNotInstalled, ImportError), (LLMTimeout, TimeoutError)])
def test_some_are_built_in_errors_too(kind: type[LLMError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="why"):
        raise kind("why")
