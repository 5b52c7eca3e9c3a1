"""The supervised servers and the person of the tests of supervision."""

from tests.unit.mcp.supervision.conftest import person, server, supervise

__all__ = ["person", "server", "supervise"]
