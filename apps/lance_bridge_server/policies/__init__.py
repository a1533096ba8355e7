"""The built-in authorizer: Cedar policies over the tree of namespaces and tables."""

from .authorizer import CedarAuthorizer

__all__ = ["CedarAuthorizer"]
