"""Logging in to servers: OAuth 2.1 (specification, "Authorization"), driven by the official SDK's providers.

The SDK is asynchronous and heavy. It is imported, and run in an event loop of its own, only when a token has to be
asked for; a token that is there costs one header.
"""
