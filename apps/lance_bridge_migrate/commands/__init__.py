"""The group of commands ``lance-bridge migrate``, imported when one of them is used."""

from lance_bridge_cli.groups import imported_app

app = imported_app(
    f"{__name__}.migrate", "Move tables between directories, catalogs and ways of managing them."
)
