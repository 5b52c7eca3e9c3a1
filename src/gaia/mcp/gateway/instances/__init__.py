"""Processes of a server that are not shared: one for each session, client or handle.

`handles` has the owners: sessions, clients, and the handles of clients of the stateless era. `instances` has the
processes of one server: their owners, when a process is started, and which process makes room for another.

Invariants: a process belongs to one owner until the owner is gone, and never to another owner, because it may remember
the owner's data. The number of processes of a server and of a client is bounded. Nothing here waits for a start: one
started process is kept as a spare.
"""
