"""Supervision: one supervisor per server keeps it alive, and says what happens to it."""
