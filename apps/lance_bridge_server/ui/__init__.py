"""The catalog page: catalogs, tables and rows in a browser, at `/ui`.

It is rendered on the server, and readable without script. Everything on it comes from operations of
the API that are carried out for the principal of the page (`Gateway.call`): what that principal may
not see is not on the page.
"""

from .routes import ui_routes

__all__ = ["ui_routes"]
