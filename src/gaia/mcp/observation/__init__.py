"""Spans, metrics and log events of a client's requests and of its server's life.

- `request_spans`: one `Observation` for each message, with its CLIENT span, its duration and its log event. `Observer`
  makes them for one server; it decides how much of arguments and results is recorded, with secrets masked.
- `lifecycle_spans`: spans and metrics for starts, restarts, stops, stand-bys and replacements of a server.

Invariants: these methods are quick and never raise. An observation ends once. No content is recorded as long as the
server's secrets are unknown. Span processors of the application run on an executor, not on an engine thread.
"""
