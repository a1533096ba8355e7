"""Authentication: one module for each method, and `chain`, which combines them."""
