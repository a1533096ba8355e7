"""The migration types; `lance_bridge_migrate.migration` lists their names and modules."""
