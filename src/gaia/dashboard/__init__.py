"""A local web page about running servers: `Dashboard` serves it beside the application (extra ``gaia-mcp[dashboard]``).

```python
from gaia.dashboard import Dashboard

with Dashboard(manager) as dashboard:
    print(dashboard.url)
```
"""

from gaia.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
