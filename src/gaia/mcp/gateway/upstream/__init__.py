"""The way of a request to one server and back, with the questions that the server asks on it."""
