"""What clients see of the servers.

`view` is what clients with one profile see at one path: tools, prompts, resources and templates under one set of names,
with the way back to the servers. Each list is encoded once. `cached_list` keeps a server's prompts, resources or
templates. `upstream_servers` has the servers, their processes and their log levels. `notifier` tells clients of
changes.

Invariants: names do not depend on what a client may see. Lists stay available while a server restarts. Opening and
listing wait for starting servers, but only for seconds. Clients that are slow or many do not delay others: events are
told in slices, and dropped beyond a bound.
"""
