"""The command ``gaia mcp gateway``, in a process that may trace.

    gaia_gateway.py CONFIG PORT [--traced] [--guarded]

With ``--traced`` it has a tracer provider that records everything and throws it away. With ``--guarded`` it has the
clients file and writes the audit that are beside the configuration.
"""

from __future__ import annotations

import sys
from pathlib import Path

from driving import trace_if_asked

if __name__ == "__main__":
    trace_if_asked()
    from gaia.cli.main import main

    config, port, *words = sys.argv[1:]
    sys.argv = ["gaia", "mcp", "gateway", "--config", config, "--port", port]
    if "--guarded" in words:
        folder = Path(config).parent
        sys.argv += ["--clients", str(folder / "clients.json"), "--audit", str(folder / "audit.jsonl")]
    main()
