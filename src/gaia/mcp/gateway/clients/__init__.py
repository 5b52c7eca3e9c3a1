"""Clients as the gateway sees them: their requests, their sessions and the metadata of requests.

`pending_request` has one request of a client, from its arrival to its answer: which members of the params servers get,
who sends the answer, what cancels it. `sessions` has the sessions of clients of the handshake era: who owns a session,
when it ends, which one makes room for another. `metadata` decides the era of a request, and checks the headers of the
stateless era against the body.

Everything here belongs to the gateway's event loop. A request is answered at most once. A session exists only for the
client that opened it, at the path where it was opened.
"""
