"""The `gaia` command: words and tables over the public client. Each module is one command, or what they share."""
