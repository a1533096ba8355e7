"""What a vendor of credentials implements: the grants it receives, and the options it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from _lance_bridge_names import vendors

from ..catalog import Path
from ..errors import invalid, unsupported
from ..extras import import_attribute

# -- principals ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """The principal of a request, who gets credentials in its own name, with its own rights."""

    principal: str
    allows: Callable[[bool], bool]
    """Returns whether it may have credentials for the tables, to write (True) or to read."""


CALLER: ContextVar[Caller | None] = ContextVar("lance_bridge_caller", default=None)
"""The caller that this thread works for; None if the process works for itself."""


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Run the block for a caller: credentials are then its own, never this process's."""
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)


PRINCIPAL = "lance_bridge.principal"
"""The property of a transaction that names the principal for whom a server made it."""


# -- vendors ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    """What credentials must allow. `sources` has checked all of it."""

    store: str
    """One of the vendor's `stores`."""
    bucket: str
    """The bucket or container."""
    prefix: str
    """The prefix of the table's objects: decoded, never empty, without slashes at its ends."""
    table: Path
    write: bool
    """Whether to allow putting and deleting objects, besides reading and listing them."""
    governed: bool = False
    """Whether the catalog commits the table's versions: credentials to write must not allow
    creating ``_versions/*.manifest``, nor creating or deleting ``_transactions/*.batch.json``,
    if the store can express that. Staged manifests have another ending."""
    principal: str | None = None
    """The principal that the credentials are for; None for the process itself."""
    account: str | None = None
    """The storage account, if the location names one."""


class VendorOptions(BaseModel):
    """The options of every vendor; a vendor adds its own fields in a subclass.

    A field is set by ``credentials.<field>``, or by ``credentials.<name>.<field>`` for a prefix.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )

    holds_secrets: ClassVar[bool] = True
    """Whether a field may be a secret. None is shown or pickled then, but those of other vendors
    that hold none."""

    duration_seconds: int = Field(
        default=3600,
        ge=1,
        le=604_800,
        description="How long credentials are good, in seconds. That is also how long it takes "
        "until a right that is withdrawn ends.",
    )


class Vendor(ABC):
    """Creates credentials that are valid for one table. Safe to share between threads.

    A forked child must use no lock or connection of its parent: see `lance_bridge.forks`.
    """

    options_type: ClassVar[type[VendorOptions]] = VendorOptions
    stores: ClassVar[frozenset[str] | None]
    """The stores whose credentials it vends, by the schemes of their locations: ``s3``, ``gs``,
    ``az`` for all of Azure's, or another that Lance opens. None: every store."""

    def __init__(self, options: Any, storage: Mapping[str, str]) -> None:
        """Check the options, without making a call.

        Args:
            options: An instance of `options_type`.
            storage: The options of ``storage.*``, with the catalog's own credentials, if any.

        Raises:
            ValueError: the options contradict each other; core adds the name of the property.
        """
        self.options = options
        self.storage = storage

    @abstractmethod
    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return storage options that allow what the grant says, and nothing else.

        Use `expiring_options` to create them. Refuse what the store cannot limit; never widen it.

        Raises:
            PermissionDeniedError: (15) the service refuses.
            ThrottlingError: (21) it has too many requests.
            ServiceUnavailableError: (17) it does not respond in time, or clocks differ.
            InvalidTableStateError: (19) no policy can hold this table's location.
            UnsupportedOperationError: (0) the service cannot limit credentials to a table.
        """


def find_vendor(name: str) -> type[Vendor]:
    """Return the class of a vendor by the name of its entry point, or by its class path.

    Raises:
        InvalidInputError: (13) there is none.
        UnsupportedOperationError: (0) an extra is not installed; the message has the command.
    """
    known = vendors()
    module, _, attribute = known.get(name, name).rpartition(".")
    if not module:
        choices = ", ".join(sorted(known))
        raise invalid(f"There is no vendor '{name[:60]}'; known vendors: {choices}")
    try:
        cls = import_attribute(module, attribute)
    except ImportError as error:
        raise unsupported(f"Vendor '{name[:200]}' cannot be imported: {error}") from error
    except AttributeError as error:
        raise invalid(f"There is no vendor '{name[:200]}'") from error
    if not (isinstance(cls, type) and issubclass(cls, Vendor)):
        raise invalid(f"'{name[:200]}' is not a vendor")
    return cls
