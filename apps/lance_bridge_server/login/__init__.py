"""Signing in to the catalog page by an API key or an identity provider; sessions in cookies."""

from .identities import Identity
from .login import Login
from .provider_login import LoginAttempt, ProviderClient, ProviderLogin
from .sealing import Seal
from .sessions import Session, Sessions

__all__ = [
    "Identity",
    "Login",
    "LoginAttempt",
    "ProviderClient",
    "ProviderLogin",
    "Seal",
    "Session",
    "Sessions",
]
