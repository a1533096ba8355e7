"""`CatalogSuite`: tests of a ``lance_bridge.Catalog``, whose methods they call directly.

The suite of namespaces reaches an adapter through core, which checks, repairs and reads back. These
cases see what core hides: every property, page and revision, and the answers to faults.
"""
