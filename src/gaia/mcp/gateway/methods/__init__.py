"""What the gateway does for each method of the protocol.

`dispatch` maps methods to handlers, for each era. `opening` has ``initialize``, ``server/discover``, ``ping`` and
``logging/setLevel``; `features` has tools, prompts, resources and completion; `subscriptions` has changes of lists and
resources. `relaying` passes a request on to a server, and turns its end into the client's answer: limits before it,
audit, counts and error texts after it.

Handlers run on the gateway's event loop and return at once; answers that have to wait come by callbacks. No handler
leaves a request without an answer. The audit has its line before the client has the answer.
"""
