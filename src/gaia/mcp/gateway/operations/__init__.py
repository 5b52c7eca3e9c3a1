"""What a gateway needs as a service: signals, probes, metrics, and a configuration that may change."""
