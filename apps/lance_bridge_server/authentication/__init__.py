"""Authentication: one module for each method, and `chain`, which tries them in order."""
