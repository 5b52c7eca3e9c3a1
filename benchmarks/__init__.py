"""Compares gaia-mcp with a raw pipe and with other clients: ``python -m benchmarks``."""
