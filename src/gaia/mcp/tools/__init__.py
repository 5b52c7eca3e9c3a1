"""Tools as the client sees them: names, schemas, the catalog, filters, pins and results.

- `naming`: the name of a tool among the tools of several servers.
- `tool`: a listed tool, and its parameters for an agent's registry.
- `tool_catalog`: which tools a server offers now, and how large their definitions may be.
- `tool_filter` and `pins`: which tools are denied, and which are withheld until a person approves them.
- `output_validation`: whether results fit the tool's output schema.
- `tool_result`: the dict that a tool call returns.

Invariants: a definition is measured before anything else uses it. Pins live in the user's folder, never in a project.
Only the client writes ``error_type`` and ``delivery`` of a result.
"""
