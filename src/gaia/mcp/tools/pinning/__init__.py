"""Tool definitions that people have approved, and what happens when a server shows others."""
