"""Where clients' messages come in and their answers go out: over HTTP, or line by line."""
