"""The entries of servers in configuration files: read, checked, expanded and trusted."""
