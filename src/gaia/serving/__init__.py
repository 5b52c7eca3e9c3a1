"""Serves HTTP for the gateway, the dashboard and agents. Nothing here knows the protocol of the messages.

`http` starts a guarded server with the `options` of the command line: `guards` check hosts, origins, tokens and sizes.
`http_protocol` is one connection and its responses, `connections` bounds all of them, `responses` is the interface of
handlers that answer by callbacks. `service_manager` reports to the service manager; `loading` and `threads` are for
serving an agent; `descriptors` takes standard input and output for a protocol.

Invariants: a server that other machines can reach has access control. Each client has a bounded number of connections,
a bounded time for its request, and bounded unread data. Responses keep the order of the requests.
"""
