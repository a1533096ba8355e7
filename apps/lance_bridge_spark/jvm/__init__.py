"""The Java half of the SQL catalog: its sources, and the jar that is made of them."""
