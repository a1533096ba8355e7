"""The kinds of migrations, one per module; `registry` has their names."""
