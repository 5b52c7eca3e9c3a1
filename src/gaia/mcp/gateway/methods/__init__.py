"""What a gateway does for each method of the protocol, and how requests are passed on to servers."""
