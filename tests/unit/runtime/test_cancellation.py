from __future__ import annotations

import contextvars
import threading

from gaia.runtime.cancellation import CancelScope, current_scope


def test_callbacks_run_once_when_it_is_cancelled() -> None:
    scope, heard = CancelScope(), []
    scope.on_cancel(lambda: heard.append("first"))
    forget = scope.on_cancel(lambda: heard.append("forgotten"))
    forget()
    forget()
    assert (scope.cancelled, scope.cancel(), scope.cancelled, scope.cancel()) == (False, True, True, False)
    assert heard == ["first"]


def test_who_comes_late_is_told_at_once() -> None:
    scope, heard = CancelScope(), []
    scope.cancel()
    scope.on_cancel(lambda: heard.append("late"))()
    assert heard == ["late"]


def test_the_scope_around_the_caller_is_found_also_in_threads_with_its_context() -> None:
    found: list[CancelScope | None] = []
    assert current_scope() is None
    with CancelScope().entered() as scope:
        context = contextvars.copy_context()
        for target in (
            lambda: found.append(current_scope()),
            lambda: context.run(lambda: found.append(current_scope())),
        ):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert found == [None, scope]
    assert current_scope() is None


def test_an_inner_scope_is_cancelled_with_the_outer_one_and_not_the_other_way_round() -> None:
    with CancelScope().entered() as outer:
        with CancelScope().entered() as first:
            first.cancel()
        assert not outer.cancelled
        with CancelScope().entered() as second:
            outer.cancel()
            assert second.cancelled
        with CancelScope().entered() as third:
            assert third.cancelled
