"""Real servers for tests: metastores of every release, and a proxy that counts and breaks calls."""
