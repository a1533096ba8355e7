"""The configuration of a server: `settings` declares it, `source` reads it."""
