"""What ends once, and what an exception of a signal handler interrupts."""

from typing import Any
from unittest.mock import Mock, call

import pytest

from gaia.runtime.locks import completed, end_once


class TestEndOnce:
    def test_only_the_first_outcome_counts(self) -> None:
        claim: dict[None, tuple[Any, ...]] = {}
        conclude = Mock()
        assert end_once(claim, ("a", 1), conclude)
        assert not end_once(claim, ("b", 2), conclude)
        assert conclude.call_args_list == [call("a", 1)]

    def test_an_equal_outcome_is_another_one(self) -> None:
        claim: dict[None, tuple[Any, ...]] = {}
        for is_first in (True, False):
            assert end_once(claim, (None, str(0)), Mock()) is is_first

    def test_an_interrupted_end_is_completed_and_the_interruption_raised(self) -> None:
        conclude = Mock(side_effect=[KeyboardInterrupt, None])
        with pytest.raises(KeyboardInterrupt):
            end_once({}, (1,), conclude)
        assert conclude.call_args_list == [call(1), call(1)]

    def test_an_interruption_before_the_claim_ends_nothing(self) -> None:
        class Interrupted(dict[None, tuple[Any, ...]]):
            def setdefault(self, *_: Any) -> Any:
                raise KeyboardInterrupt

        conclude = Mock()
        with pytest.raises(KeyboardInterrupt):
            end_once(Interrupted(), (1,), conclude)
        conclude.assert_not_called()


class TestCompleted:
    def test_a_step_is_run_once(self) -> None:
        step = Mock(return_value=3)
        assert completed(step) == 3
        step.assert_called_once_with()

    def test_an_interrupted_step_is_run_again_and_the_interruption_raised(self) -> None:
        step = Mock(side_effect=[KeyboardInterrupt, 3])
        with pytest.raises(KeyboardInterrupt):
            completed(step)
        assert step.call_count == 2
