"""Servers placed on the nodes of a Ray cluster.

The driver is the program that uses the client; a host is an actor on a node, which starts one server there and
supervises it as any other. Only modules whose names begin with ``ray_`` import Ray, and only an entry with
``"placement"``, or a command about clusters, imports them.
"""
