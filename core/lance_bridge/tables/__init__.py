"""What happens inside a Lance table, over pylance and the location that the catalog gave."""
