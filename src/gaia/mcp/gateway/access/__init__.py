"""Who may do what at a gateway: its clients and their tokens, profiles, limits, and the audit."""
