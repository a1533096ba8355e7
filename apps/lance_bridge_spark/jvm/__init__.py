"""The Java half of the SQL catalog: its sources, and the jar that is compiled from them."""
