"""The command group ``lance-bridge migrate``; its commands are imported on first use."""

from lance_bridge_cli.app import imported_app

app = imported_app(
    f"{__name__}.planning", "Move tables between directories, catalogs and ways of managing them."
)
