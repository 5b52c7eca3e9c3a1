"""Finds out why a server does not work: `diagnose` checks step by step, and suggests a remedy for each problem.

```python from gaia.mcp.doctor import diagnose

diagnosis = diagnose("time", {"command": "uvx", "args": ["mcp-server-time"]}, on_check=print) ```

`examination` has the order of the checks. `programs` checks the command and the sandbox, `endpoint` the network path to
a URL, `placement` the engine of a placed server. `inspection` starts the server once and judges the results.
`diagnosis` has the verdicts and the remedies in words.

Invariants: every check of a kind of server appears once, in order; checks after a failed one are skipped. No check
raises for a broken server. The server is stopped at the end. Nothing is approved, and no tool is called.
"""

from gaia.mcp.doctor.diagnosis import Check, Diagnosis, Verdict
from gaia.mcp.doctor.examination import diagnose, diagnose_all

__all__ = ["Check", "Diagnosis", "Verdict", "diagnose", "diagnose_all"]
