"""The processes of a server: how they start, listen, read their configuration again, and end."""
