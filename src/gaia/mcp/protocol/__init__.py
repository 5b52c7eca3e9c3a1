"""The protocol without I/O: what a message means and what to send next. No threads, pipes or clocks here.

- `messages` and `framing`: bytes to messages and back, with limits on size and nesting.
- `eras` and `negotiation`: the handshake era and the stateless era, and which of them a server speaks.
- `exchange`: the steps of a conversation, as a generator that any driver can run.
- `rounds`: requests that take several round trips because the server asks for input.
- `notifications` and `server_questions`: what servers send unasked, and what they ask of the client.
- `request_headers`: the HTTP headers that a request carries for proxies.
- `gateway_answers`: answers that pass through a gateway as bytes, and how it reports a lost call.
- `json_schema`: checks of values by schemas from servers.

Invariants: no module here blocks, except that a schema check uses up to two seconds of processor time. No input from a
server makes decoding recurse, grow or run without a limit.
"""
