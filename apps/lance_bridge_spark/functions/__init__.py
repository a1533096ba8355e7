"""Functions that do what SQL statements do, over the data source; they need no jar."""
