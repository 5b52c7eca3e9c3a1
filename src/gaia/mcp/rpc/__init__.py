"""JSON-RPC over one connection to one server.

- `call` is one request on the wire. It ends exactly once, and knows whether the server may have seen it.
- `connection` holds the table of calls in flight and matches answers with calls. It passes a received message to its
  call, to `incoming_requests` or to the supervisor. It also has the hook for recordings.
- `incoming_requests` answers or refuses the server's own requests.
- `channel` is the interface to a transport: `Outgoing` messages, and the reports of the transport's threads.
- `unparsed_output` counts output that is not JSON-RPC.

Invariants: a call that is reported as "not_sent" was not sent. Exactly one thread takes a call out of the table, and
only that thread ends it with an answer. The code of the application never runs on a thread of a channel.
"""
