"""The requests of one client, from the first round to the result.

`exchange` decides, without I/O, the next step of a request: send, ask the application, check the result, end. It puts
the result into the cache, sets the delivery of an error and counts the rounds. Two drivers take its steps:
`client_requests` blocks the caller's thread; `submitted_request` completes a future (an event loop derives from it).

- `caller` makes one `Call` for each round.
- `input_requests` asks the application for the inputs that a server requires before the next round.
- `response_cache` keeps the answers that a server of the stateless era allows the client to use again.

Invariants: a request ends exactly once. Each round has the whole timeout; the time that people need between two rounds
does not count. If a request fails after its first round, its delivery is "unknown". Its observation ends once.
"""
