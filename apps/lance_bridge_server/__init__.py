"""lance-bridge serve: the Lance REST specification and LanceDB's remote protocol over catalogs."""
