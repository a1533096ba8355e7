"""The audit log: principal, operation and object, the decision and its policies, and the result."""

from .log import AuditLog, open_audit_log
from .middleware import AuditMiddleware
from .trail import AuditTrail, trail_of

__all__ = ["AuditLog", "AuditMiddleware", "AuditTrail", "open_audit_log", "trail_of"]
