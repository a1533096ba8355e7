"""`CatalogSuite`: what an adapter's ``lance_bridge.Catalog`` must do, called directly.

The suite of namespaces sees an adapter through core, which checks, repairs and reads back. What it
cannot see is here: every property, every page, every revision, and answers under trouble.
"""
