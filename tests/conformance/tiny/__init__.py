"""A catalog that does not exist, and a correct adapter of it, for the kit's test of itself."""
