"""Processes of a server that are not shared: one for each session, client or handle.

`handles` has the owners: sessions, clients, and handles that clients of the stateless era send. `instances` has the
processes of one server: who owns which, when one is started, and which one makes room for another.

Invariants: a process belongs to one owner until the owner is gone, and to no other after it, because it may remember
the owner's data. The number of processes of a server and of a client is bounded. Nothing here waits for a start: one
started process is kept as a spare.
"""
