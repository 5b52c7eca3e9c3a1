"""Answers each method of the protocol.

`dispatch` maps methods to handlers, for each era. `opening` has ``initialize``, ``server/discover``, ``ping`` and
``logging/setLevel``; `features` has tools, prompts, resources and completion; `subscriptions` has changes of lists and
resources. `relaying` passes a request on to a server and turns the outcome into the client's answer: limits come before
it; audit, counts and error texts after it.

Handlers run on the gateway's event loop and return at once; later answers come by callbacks. No handler leaves a
request without an answer. The audit has its line before the client has the answer.
"""
