"""The way in for clients: HTTP or lines. This room speaks the transports; `methods` answers the requests.

`endpoint` has Streamable HTTP of both eras, independent of the HTTP server: it finds the client, the view and the
session of a request, and dispatches it. `asgi` runs it as an ASGI application. `http_reply` writes responses: one JSON
document, or a stream of events with keep-alive comments. `line_client` is a client over lines, as on stdio.

Invariants: an ordinary call needs no task, because its result comes by a callback. Nothing here waits for a client that
reads slowly: what it has not read is bounded.
"""
