"""The protocol without I/O: what a message means and what to send next. No threads, pipes or clocks here."""
