"""All supervised servers behind one endpoint, for every client."""
