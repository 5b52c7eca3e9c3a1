"""What serving an agent needs in any protocol: loading it, running it on threads, and a guarded HTTP server."""
