"""What client and server have agreed on, and what it adds to each request."""

from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol


class TestAddMeta:
    PROTOCOL = NegotiatedProtocol(
        "2026-07-28", {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, server_may_ask=False
    )

    def test_a_request_without_params_gets_some(self) -> None:
        assert self.PROTOCOL.add_meta(None, None) == {"_meta": self.PROTOCOL.request_meta}

    def test_what_a_caller_adds_is_kept_and_the_callers_dict_is_left_alone(self) -> None:
        params = {"name": "echo", "_meta": {"traceparent": "00-1-2-01"}}
        assert self.PROTOCOL.add_meta(params, 7) == {
            "name": "echo",
            "_meta": {"traceparent": "00-1-2-01", **self.PROTOCOL.request_meta, "progressToken": 7},
        }
        assert params == {"name": "echo", "_meta": {"traceparent": "00-1-2-01"}}

    def test_a_caller_cannot_speak_another_revision(self) -> None:
        sent = self.PROTOCOL.add_meta({"_meta": {"io.modelcontextprotocol/protocolVersion": "1"}}, None)
        assert sent == {"_meta": self.PROTOCOL.request_meta}

    def test_without_a_revision_that_asks_for_it_nothing_is_added(self) -> None:
        params = {"name": "echo"}
        assert NegotiatedProtocol("2025-11-25").add_meta(params, None) is params

    def test_nothing_is_added_before_anything_is_agreed(self) -> None:
        assert NOT_NEGOTIATED.add_meta(None, None) is None

    def test_a_progress_token_is_added_in_either_era(self) -> None:
        assert NOT_NEGOTIATED.add_meta(None, 0) == {"_meta": {"progressToken": 0}}

    def test_a_meta_that_is_null_is_replaced(self) -> None:
        assert self.PROTOCOL.add_meta({"_meta": None}, None) == {"_meta": self.PROTOCOL.request_meta}


class TestLogLevel:
    LEVEL = "io.modelcontextprotocol/logLevel"

    def test_each_request_asks_for_it_and_the_rest_stays(self) -> None:
        before = NegotiatedProtocol("2026-07-28", {"a": 1}, server_may_ask=False)
        after = before.with_log_level("warning")
        assert after == NegotiatedProtocol("2026-07-28", {"a": 1, self.LEVEL: "warning"}, server_may_ask=False)
        assert before.request_meta == {"a": 1}

    def test_a_later_level_replaces_it(self) -> None:
        protocol = NegotiatedProtocol("2026-07-28").with_log_level("warning").with_log_level("debug")
        assert protocol.request_meta == {self.LEVEL: "debug"}
