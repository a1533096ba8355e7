"""The processes of a server: start, listeners, reloads of the configuration, and shutdown."""
