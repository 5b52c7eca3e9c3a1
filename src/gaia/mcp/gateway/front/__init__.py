"""The transports for clients: HTTP or lines. `methods` answers the requests.

`endpoint` implements Streamable HTTP of both eras, independent of the HTTP server: it finds the client, the view and
the session of a request, and dispatches it. `asgi` runs it as an ASGI application. `http_reply` writes responses: one
JSON document, or a stream of events with keep-alive comments. `line_client` is a client over lines, as on stdio.

Invariants: an ordinary call needs no task, because its result comes by a callback. Nothing here waits for a slow
client, whose unread bytes are bounded.
"""
