"""What serving an agent needs whatever the protocol: finding it, running it on threads, guarding and running HTTP."""
