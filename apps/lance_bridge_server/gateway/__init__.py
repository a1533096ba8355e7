"""Runs the operations of requests: limits, threads, callers."""
