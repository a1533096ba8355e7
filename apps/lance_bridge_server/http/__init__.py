"""Reads requests and writes responses."""
