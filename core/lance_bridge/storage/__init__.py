"""Files of tables in object stores: locations of manifests, staged versions, and deletion."""
