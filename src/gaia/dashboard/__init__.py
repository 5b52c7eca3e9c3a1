"""A local web page about running servers: `Dashboard` serves it beside the application (extra ``gaia-mcp[dashboard]``).

```python
from gaia.dashboard import Dashboard

with Dashboard(manager) as dashboard:
    print(dashboard.url)
```

`dashboard` starts and stops it; `app` has the routes; `actions` calls tools and restarts servers for the page.
`servers` and `stores` keep the states, spans and log events that the page shows. `live_updates` sends them; `responses`
encodes them.

Invariants: the API needs a token. Calls of the application never wait for a page. Everything kept is bounded. Text from
servers never becomes markup.
"""

from gaia.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
