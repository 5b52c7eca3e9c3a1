"""The permissions of a gateway's clients.

`access` finds the client of a request by its token; `issuers` and `issuer_keys` verify tokens of authorization servers;
`principal` holds the client that they find. `clients_file` and `settings` read the clients file. `profile` decides what
a client sees and uses, `resource_uri` compares URIs with its filters. `limits` admits calls through the gates and
circuits of `gate`. `audit` and `audit_file` write a line for each call. `checks` applies the limits and the audit to
every call, and keeps each client's shares.

Invariants: a denied thing looks like one that does not exist. Filters hold for every way in which a server may read a
URI. A call is recorded before its answer leaves; without a working audit there are no new calls. Tokens appear in no
message, log or file: the clients file has hashes. Waiting calls are bounded in number and time.
"""
