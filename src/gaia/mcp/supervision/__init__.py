"""One supervisor for each server: a thread with an event loop that starts, checks, restarts and stops the server.

- `supervisor` is the thread and its public methods; `server_lifecycle` has the steps from start to loss.
- `policy` decides, without I/O, whether and when a lost server is started again; `follow_up` carries that out.
- `generation` is one started process or session. `spare` is the stand-by and planned replacement, `recycling` says when
  a process is replaced or stopped because of age, calls, memory or idleness, `draining` lets old processes finish.
- `call_queue` sends each call, lets it wait, or refuses it. `status` has the state and figures for the application.
- `maintenance`, `health`, `exchange_runner` and `subscriptions` look after a ready connection.
- `server_requests`, `client_features` and `callbacks` run the application's answers on their own threads; listeners get
  `events` there. `login` asks a person to log in. `context` holds the settings that all parts share.

Invariants: only the supervisor's thread changes the state. It never waits for a server, for a person or for user code.
An exception in a step costs the server a restart, but does not end the supervision. A call is never written twice
unless it may be repeated.
"""
