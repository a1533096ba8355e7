"""Who may do what: authentication, authorization, policies, audit."""

from .authorizer import AllowAll, Authorizer
from .permissions import Decision

__all__ = ["AllowAll", "Authorizer", "Decision"]
