"""The protocol without I/O: the meaning of messages, and the next message to send. No threads, pipes or clocks here.

- `messages` and `framing`: bytes to messages and back, with limits on size and nesting.
- `eras` and `negotiation`: the handshake era and the stateless era, and which of them a server speaks.
- `exchange`: the steps of a conversation, as a generator that any driver can run.
- `rounds`: requests that take several round trips because the server asks for input.
- `notifications` and `server_questions`: notifications of servers, and their requests to the client.
- `request_headers`: the HTTP headers of a request, for proxies.
- `gateway_answers`: answers that pass through a gateway as bytes, and how it reports a lost call.
- `json_schema`: checks of values by schemas from servers.

Invariants: no module here blocks, except that a schema check uses up to two seconds of processor time. No input from a
server makes decoding recurse, grow or run without a limit.
"""
