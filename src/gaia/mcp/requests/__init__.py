"""The requests of one client: what happens to a request from the first round to its result.

`exchange` decides, without I/O, what a request does next: send, ask the application, check the result, end. It puts the
result into the cache, sets the delivery of an error and counts the rounds. Two drivers do what it says:
`client_requests` blocks the caller's thread; `submitted_request` completes a future (an event loop derives from it).

- `caller` makes one `Call` for each round, and says what a request needs of a session.
- `input_requests` asks the application for the inputs that a server requires before the next round.
- `response_cache` keeps the answers that a server of the stateless era allows the client to use again.

Invariants: a request ends exactly once. Each round has the whole timeout; the time that people need between two rounds
does not count. If a request fails after its first round, its delivery is "unknown". Its observation ends once.
"""
