"""Vendors of storage credentials: AWS, Azure, Google, and the options of ``storage.*``.

Each has its own extra (``vend-aws``, ``vend-azure``, ``vend-google``) and is imported by its entry
point in the group ``lance_bridge.vendors``.
"""
