import msgspec
import pytest

from gaia.mcp.cluster.wire import (
    AskedCall,
    EventHappened,
    Launch,
    Reply,
    Sent,
    StateReached,
    ToolsListed,
    WireError,
    WireProfile,
    decode_events,
    decode_reply,
    encode,
)
from gaia.mcp.errors import JsonRpcError, MCPError, ServerCrashed, ServerUnavailable
from gaia.mcp.protocol.eras import HandshakeEra, ServerProfile, StatelessEra
from gaia.mcp.supervision.events import ServerState


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            ServerCrashed("it ended", delivery="unknown"),
            ServerUnavailable("it is down", retry_in=2.5),
            JsonRpcError(-32602, "wrong", {"field": "a"}),
        ],
    )
    def test_an_exception_arrives_as_it_was(self, error: MCPError) -> None:
        reply = decode_reply(encode(Reply(error=WireError.of(error))))
        assert reply.error is not None
        restored = reply.error.restored()
        assert type(restored) is type(error)
        assert restored.message == error.message
        assert restored.__dict__ == error.__dict__

    def test_an_unknown_one_may_have_been_acted_on(self) -> None:
        restored = WireError("Popen", "strange", {}).restored()
        assert type(restored) is MCPError
        assert restored.delivery == "unknown"


def test_events_keep_their_kinds() -> None:
    events = [
        StateReached(state=ServerState.READY, generation=2, profile=WireProfile("2025-11-25", {}, {}, False)),
        ToolsListed(1),
        ToolsListed(1, [{"name": "add"}]),
        EventHappened("ResourceUpdated", {"uri": "file:///a"}),
    ]
    assert decode_events(encode(Sent(7, events))) == Sent(7, events)


@pytest.mark.parametrize("era", [HandshakeEra(), StatelessEra()])
def test_a_profile_keeps_its_era(era: HandshakeEra | StatelessEra) -> None:
    profile = ServerProfile("2025-11-25", {"name": "it"}, {"tools": {}}, era, "be kind")
    restored = WireProfile.of(profile).restored()
    assert type(restored.era) is type(era)
    assert msgspec.structs.replace(restored, era=era) == profile


def test_secrets_are_not_in_what_is_shown() -> None:
    assert "hush" not in repr(Launch(command="it", env={"KEY": "hush"}, secrets=["hush"]))


def test_bytes_go_as_they_are() -> None:
    frame = b'{"method": "x"}'
    asked = AskedCall("i", 1, 2.0, None, False, False, None, 3.0, frame)
    assert frame in encode(asked)
