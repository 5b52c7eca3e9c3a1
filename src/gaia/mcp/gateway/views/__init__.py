"""The gateway's servers as clients see them.

`view` shows clients with one profile at one path the tools, prompts, resources and templates under one set of names,
and routes names back to the servers. Each list is encoded once. `cached_list` keeps a server's prompts, resources or
templates. `upstream_servers` has the servers, their processes and their log levels. `notifier` tells clients of
changes.

Invariants: names do not depend on a client's rights. Lists stay available while a server restarts. Opening and listing
wait for starting servers, but only for seconds. Slow or numerous clients do not delay others: events are told in
slices, and dropped beyond a bound.
"""
