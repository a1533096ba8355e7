"""Operations on transactions, and commits to several tables."""

from __future__ import annotations

from .base import Operations


class TransactionOperations(Operations):
    """Operations on transactions, and commits to several tables."""
