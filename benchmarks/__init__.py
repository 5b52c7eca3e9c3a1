"""How gaia-mcp compares with a bare pipe and with other clients: ``python -m benchmarks``."""
