"""A client's requests: made once, in several rounds if the server asks, from a thread, a loop or a future."""
