"""The tools of MCP servers for other agent frameworks: one module for each framework, with its name.

An adapter takes a running `MCPClientManager` or `AsyncMCPClientManager`, or a `ToolSelection` of one, and never starts
or stops servers. Its tools have the names of `manager.list_tools`, may be shared by agents, threads and event loops,
and keep working after a restart of their server. Importing an adapter without its framework raises an ImportError that
says what to install.

`selection` decides which tools an agent may use and which calls need approval, keeps what was made of them, and makes
the calls. `results` turns a result into text or content for a model, `arguments` adapts schemas, and `calls_in_doubt`
decides when a repeated call must not be made. Adapters of your own may use these modules too.

Invariants: a failed call is a text for the model, unless the framework needs an exception. A call that may have taken
effect is not repeated if its tool is not marked as safe to repeat. A tool outside the selection is never called, nor is
a call that needs approval and has none. What is made of a tool is never older than the manager's listing.
"""
