"""Versions of a table and what names them: manifests, tags, branches, transactions, batches."""
