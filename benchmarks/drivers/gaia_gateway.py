"""gaia-mcp's gateway as a program: ``gaia_gateway.py CONFIG PORT [--traced]``.

With ``--traced`` it has a tracer provider that records everything and throws it away.
"""

from __future__ import annotations

import sys


def main(config: str, port: str, *, traced: bool) -> None:
    if traced:
        from gaia_traced_driver import batching_provider
        from opentelemetry import trace

        trace.set_tracer_provider(batching_provider(sampled=True))
    import uvicorn

    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.gateway import Gateway

    uvicorn.run(Gateway(MCPConfig(config)), port=int(port), log_level="error", access_log=False, ws="none")


if __name__ == "__main__":
    main(*sys.argv[1:3], traced="--traced" in sys.argv)
