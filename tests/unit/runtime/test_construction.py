from __future__ import annotations

import inspect
from typing import Any

import pytest

from gaia.runtime.construction import ConstructionHook, check_no_arguments_left, takes_keyword_after


class Recorded(ConstructionHook):
    """Writes down what happens to it."""

    def __new__(cls, log: list[str], *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.log = log
        return self

    log: list[str]

    def _construction_finished(self) -> None:
        self.log.append("finished")

    def _construction_failed(self) -> None:
        self.log.append("failed")


class Parent(Recorded):
    def __init__(self, log: list[str], *, fail: bool = False) -> None:
        if fail:
            raise LookupError
        log.append("parent")


class Child(Parent):
    def __init__(self, log: list[str], *, fail: bool = False) -> None:
        super().__init__(log, fail=fail)
        log.append("child")


class Sibling(Child): ...


@pytest.mark.parametrize("cls", [Child, Sibling])
def test_the_end_comes_once_when_the_outermost_constructor_returns(cls: type[Child]) -> None:
    log: list[str] = []
    cls(log)
    assert log == ["parent", "child", "finished"]


def test_a_constructor_that_raises_is_a_failure_once() -> None:
    log: list[str] = []
    with pytest.raises(LookupError):
        Child(log, fail=True)
    assert log == ["failed"]


def test_an_end_that_raises_is_a_failure() -> None:
    class Unfinished(Parent):
        def __init__(self, log: list[str]) -> None:
            super().__init__(log)

        def _construction_finished(self) -> None:
            raise LookupError

    log: list[str] = []
    with pytest.raises(LookupError):
        Unfinished(log)
    assert log == ["parent", "failed"]


def test_one_object_constructed_within_another_has_an_end_of_its_own() -> None:
    class Outer(Recorded):
        def __init__(self, log: list[str]) -> None:
            Child(log)
            log.append("outer")

    log: list[str] = []
    Outer(log)
    assert log == ["parent", "child", "finished", "outer", "finished"]


def test_a_constructor_keeps_its_signature() -> None:
    assert str(inspect.signature(Child)) == "(log: 'list[str]', *, fail: 'bool' = False) -> 'None'"


def test_a_keyword_reaches_who_takes_it_through_those_who_pass_it_on() -> None:
    class Mixin: ...

    class Passing:
        def __init__(self, **kwargs: Any) -> None: ...

    class Taking:
        def __init__(self, debug: bool = False) -> None: ...

    class Closed:
        def __init__(self) -> None: ...

    assert takes_keyword_after(type("A", (Mixin, Passing, Taking), {}), Mixin, "debug")
    assert not takes_keyword_after(type("B", (Mixin, Closed, Taking), {}), Mixin, "debug")
    assert not takes_keyword_after(type("C", (Taking, Mixin), {}), Mixin, "debug")
    assert not takes_keyword_after(type("D", (Mixin, Passing), {}), Mixin, "debug")


def test_only_arguments_for_object_are_refused() -> None:
    class Taking:
        def __init__(self, debug: bool) -> None: ...

    check_no_arguments_left(Taking, super(Taking, Taking(True)).__init__, (), {})
    check_no_arguments_left(Taking, Taking(True).__init__, (1,), {"debug": True})
    with pytest.raises(TypeError, match=r"Taking\(\) got unexpected arguments: 1, size"):
        check_no_arguments_left(Taking, super(Taking, Taking(True)).__init__, (1,), {"size": 2})
