"""Authorization: the port, finding authorizers, and hiding what a principal may not see."""

from .port import AllowAll, Authorizer, Decision

__all__ = ["AllowAll", "Authorizer", "Decision"]
