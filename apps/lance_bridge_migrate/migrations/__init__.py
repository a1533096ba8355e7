"""The migration types, one per module; `lance_bridge_migrate.migration` lists their names."""
