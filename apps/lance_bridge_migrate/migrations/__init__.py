"""The types of migrations, one per module; `lance_bridge_migrate.migration` has their names."""
