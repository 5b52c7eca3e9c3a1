"""Servers on other machines: an engine starts a gateway for one server there, and the client uses it as a URL.

`engine` says what an engine is; the others are one engine each. `transport` asks an engine for the address whenever the
server is started, and then is an `HttpTransport`. The program on the other side is `gaia.mcp.gateway.host`.
"""
