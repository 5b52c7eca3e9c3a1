"""What is seen of a client from outside: spans, metrics and log events of its requests and of its server's life."""
