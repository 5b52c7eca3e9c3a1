"""Clients as the gateway sees them: their requests, their sessions and the metadata of requests.

`pending_request` holds one request of a client, from its arrival to its answer: which members of the params go to
servers, who sends the answer, and what cancels it. `sessions` holds the sessions of clients of the handshake era: who
owns a session, when it ends, and which session makes room for another. `metadata` decides the era of a request, and
compares the headers of the stateless era with the body.

Everything here belongs to the gateway's event loop. A request is answered at most once. A session exists only for the
client that opened it, at the path where it was opened.
"""
