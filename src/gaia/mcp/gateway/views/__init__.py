"""What clients see of the servers: lists under one set of names, and their changes."""
