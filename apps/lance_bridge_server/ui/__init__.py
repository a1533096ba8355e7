"""The catalog page: catalogs, tables and rows in a browser, at `/ui`.

It is rendered on the server, and works without scripts. All of its content comes from operations of
the API that run for the principal of the page (`Gateway.call`), so it never shows hidden objects.
"""

from .routes import ui_routes

__all__ = ["ui_routes"]
