"""Why a server does not work: `diagnose` looks step by step, and says for each step what may help.

```python
from gaia.mcp.doctor import diagnose

diagnosis = diagnose("time", {"command": "uvx", "args": ["mcp-server-time"]}, on_check=print)
```
"""

from gaia.mcp.doctor.diagnosis import Check, Diagnosis, Verdict
from gaia.mcp.doctor.examination import diagnose, diagnose_all

__all__ = ["Check", "Diagnosis", "Verdict", "diagnose", "diagnose_all"]
