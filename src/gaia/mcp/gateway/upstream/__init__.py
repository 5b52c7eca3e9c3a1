"""One request on its way to a server and back, with the server's questions in the meantime.

`relayed_call` is one request at a process of a server, over all its rounds. `rounds` keeps the state between two rounds
for clients of the stateless era, and `sealing` encrypts the part that the client carries.

Invariants: a call ends exactly once. A question ends once: answered, refused or withdrawn. Only the client that
received a state can use it, and only for the same request. Calls that wait for a client are bounded in number and time.
"""
