"""JSON-RPC over one connection: calls that end exactly once, and the table that matches answers with them."""
