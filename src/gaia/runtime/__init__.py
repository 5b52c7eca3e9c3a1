"""Basics that every room uses: threads, event loops, locks, clocks, log events, and text that is safe to show.

- `threads`, `handover`, `locks`: threads on which servers depend, and code that survives signals and forks.
- `clock`, `deadlines`, `event_loop`, `loop_work`: time, timers, a supervisor's loop, and work for an asyncio loop.
- `cancellation`, `construction`, `lazy_names`, `rates`: scopes, constructors of mixins, lazy imports, rate limits.
- `log`, `redaction`, `untrusted_text`: events, masked secrets, and text of servers made safe for a person.
- `json_file`, `private_files`, `extras`: files of the user, files hidden from sandboxes, and optional packages.

Invariants: engine threads (supervisors, readers, writers) neither run nor wait for code of the application. A lock that
a signal handler, a finalizer or a forked child may need comes from `locks`. Code that waits uses a `Clock`.
"""
