"""What is measured, one measure a module. Each takes a `Session` and adds rows to its run."""
