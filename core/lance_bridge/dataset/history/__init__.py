"""Versions of a table, with their manifests, tags, branches, transactions and batches."""
