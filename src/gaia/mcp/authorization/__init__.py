"""Logging in to servers: OAuth 2.1 (specification, "Authorization"), driven by the official SDK's providers.

- `config`: the ``auth`` of an entry; `configured` makes the login from it when the server is opened.
- `server_authorization`: which token a request gets, and when it is renewed or a person is asked.
- `challenge` reads the ``WWW-Authenticate`` header of a 401 or 403.
- `token_file`: where a login is kept between processes.
- `flows`, `providers` and `browser`: one run of an SDK flow. Importing one of them imports the SDK.
- `endpoint_policy`: which addresses a login may connect to.

Invariants: one thread at a time asks for a token, and other threads share the result. A configured secret goes only to
the authorization server that it belongs to. The SDK is asynchronous and slow to import, so it is imported, and run in
its own event loop, only to obtain a token; an existing token costs one header.
"""
