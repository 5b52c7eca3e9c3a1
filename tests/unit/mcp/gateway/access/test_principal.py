"""Which client a request comes from."""

from gaia.mcp.gateway.access.principal import Pending, Principal, Refused
from gaia.mcp.gateway.access.profile import Profile


def test_a_client_stays_the_same_when_its_profile_changes() -> None:
    assert Principal("ann", Profile("a")) == Principal("ann", Profile("b"))
    assert len({Principal("ann", Profile("a")), Principal("ann"), Principal("bob")}) == 2


def test_an_answer_comes_to_the_callback_whichever_is_first() -> None:
    answers: list[Principal | Refused] = []
    later, before = Pending(), Pending()
    later.then(answers.append)
    assert answers == []
    later.settle(Principal("ann"))
    before.settle(Principal("bob"))
    before.then(answers.append)
    assert answers == [Principal("ann"), Principal("bob")]
