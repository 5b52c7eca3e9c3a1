import threading

import pytest

from gaia.mcp.cluster.host_features import HostFeatures, Questions
from gaia.mcp.cluster.wire import Answer, AskedInput, Withdrawn
from gaia.mcp.protocol.messages import Refusal
from gaia.runtime.cancellation import CancelScope
from tests.waiting import PATIENCE


class Driver:
    """Answers as it is told."""

    def __init__(self, answer: Answer | None) -> None:
        self.told: list[AskedInput | Withdrawn] = []
        self.asked = threading.Event()
        self._answer = answer
        self.questions = Questions(self.tell)

    def tell(self, event: AskedInput | Withdrawn) -> None:
        self.told.append(event)
        if isinstance(event, AskedInput):
            if self._answer is not None:
                self.questions.answered(self._answer)
            self.asked.set()


def features(driver: Driver, timeout: float = PATIENCE) -> HostFeatures:
    return HostFeatures(declared={"elicitation": {"form": {}}}, timeout=timeout, questions=driver.questions)


class TestDeclared:
    def test_what_the_driver_declared_is_offered(self) -> None:
        offered = features(Driver(None))
        assert offered.capabilities == {"elicitation": {"form": {}}}
        assert offered.offers("elicitation/create")
        assert not offered.offers("roots/list")
        assert not offered.answers_at_once("roots/list")


class TestAsking:
    def test_the_answer_of_the_driver_is_the_answer(self) -> None:
        driver = Driver(Answer(1, {"action": "accept"}))
        assert features(driver).answer("it", "elicitation/create", {"message": "ok?"}) == {"action": "accept"}
        assert driver.told == [AskedInput(1, "elicitation/create", {"message": "ok?"})]

    def test_a_refusal_is_one(self) -> None:
        with pytest.raises(Refusal, match="no model"):
            features(Driver(Answer(1, None, -32603, "no model"))).answer("it", "elicitation/create", {})

    def test_without_an_answer_it_is_withdrawn(self) -> None:
        driver = Driver(None)
        with pytest.raises(Refusal):
            features(driver, timeout=0.01).answer("it", "elicitation/create", {})
        assert driver.told[-1] == Withdrawn(1)

    def test_it_is_cancelled_with_its_scope(self) -> None:
        driver, scope, refused = Driver(None), CancelScope(), threading.Event()

        def ask() -> None:
            with scope.entered(), pytest.raises(Refusal):
                features(driver).answer("it", "elicitation/create", {})
            refused.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert driver.asked.wait(PATIENCE)
        scope.cancel()
        assert refused.wait(PATIENCE)
        thread.join(PATIENCE)
        assert driver.told[-1] == Withdrawn(1)

    def test_an_answer_that_comes_late_is_dropped(self) -> None:
        Driver(None).questions.answered(Answer(7, {}))
