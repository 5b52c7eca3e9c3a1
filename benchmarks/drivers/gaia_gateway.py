"""The command ``gaia mcp gateway``, in a process that may trace: ``gaia_gateway.py CONFIG PORT [--traced]``.

With ``--traced`` it has a tracer provider that records everything and throws it away.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if "--traced" in sys.argv:
        from gaia_traced_driver import batching_provider
        from opentelemetry import trace

        trace.set_tracer_provider(batching_provider(sampled=True))
    from gaia.cli.main import main

    sys.argv = ["gaia", "mcp", "gateway", "--config", sys.argv[1], "--port", sys.argv[2]]
    main()
