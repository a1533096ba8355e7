"""`CatalogSuite`: tests of a ``lance_bridge.Catalog``, whose methods they call directly.

The suite of namespaces calls an adapter through core, which checks, repairs and reads back. These
cases test what core hides: every property, page and revision, and the response to faults.
"""
