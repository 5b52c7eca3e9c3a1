"""The tools of MCP servers for other agent frameworks: one module for each framework, named like it.

An adapter takes a running `MCPClientManager` or `AsyncMCPClientManager`, which stays its owner's: adapters start and
stop no servers. None of the frameworks is a dependency of gaia-mcp; importing an adapter without its framework raises
an ImportError that says what to install. `gaia.adapters.results` is what they share, for adapters of your own.
"""
