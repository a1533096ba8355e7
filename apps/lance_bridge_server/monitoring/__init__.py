"""What the operators of a server see: its health, log, metrics and traces."""
