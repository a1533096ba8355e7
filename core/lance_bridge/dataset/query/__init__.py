"""Queries: what is asked, the columns that are wanted, and how rows are found."""
