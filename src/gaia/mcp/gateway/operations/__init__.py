"""Runs a gateway as a service.

`pages` answers ``/health``, ``/ready``, ``/metrics`` and ``/status``; `status` and `metrics` compute their contents.
`reloader` reads the configuration again when its files change. `pattern_check` warns of patterns in the clients file
that match nothing. `client_config` writes the configuration that a client needs.

Invariants: ``/health`` and ``/ready`` need no token and name no server. A client sees only the part that its profile
allows. A reload is applied completely or not at all. Pages, labels and lists are bounded for any number of clients.
"""
