"""Clients as a gateway knows them: their messages, sessions and requests under way."""
