"""Who may do what: the port, how authorizers are found, and what a principal may see."""

from .port import AllowAll, Authorizer, Decision

__all__ = ["AllowAll", "Authorizer", "Decision"]
