"""Calls to Glue, and the sessions, clients and credentials of boto3 that they are made with.

A call adds the catalog's id, reads all pages, and detects unknown outcomes.

Creating a client looks up credentials, maybe over the network (containers, instances). That must
not happen when a namespace is connected: clients are created when they are first used, and errors
in the properties are detected without them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache, partial
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    ReadOnlyCredentials,
    RefreshableCredentials,
)
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
)
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError

from lance_bridge.attempts import attempt_seconds, connect_within_attempt
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    concurrent_modification,
    display,
    invalid,
    table_not_found,
    unsupported,
)
from lance_bridge.secret_renewal import Renewal, SecretRenewal
from lance_bridge.storage_options import s3_endpoint

from .config import GlueConfig, is_region
from .errors import (
    ABSENT,
    ADVICE,
    CHANGED,
    UNAUTHENTICATED,
    LostReplyError,
    UnreadableReplyError,
    is_a,
    safe_cause,
)
from .mapping import restrict_to_shape

logger = logging.getLogger(__name__)

_PAGE = 100
"""Glue's maximum page size."""

_UNCERTAIN = ("OperationTimeoutException", "InternalServiceException", "RequestTimeout")
# What botocore's parser raises for a reply of an unexpected shape.
_UNREADABLE = (ResponseParserError, ValueError, LookupError, TypeError, AttributeError)


class _Attempts(threading.local):
    """The state of the change that this thread sends."""

    watching = False
    unsure = False
    """An attempt whose reply was lost may have made the change."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        self.watching, self.unsure = True, False
        try:
            yield
        finally:
            self.watching = False


_attempts = _Attempts()


def ask(client: Any, operation: str, members: Iterable[str], **arguments: Any) -> Mapping[str, Any]:
    """Return the response to a read-only operation, which must have all these members.

    Raises the errors of botocore, and UnreadableReplyError.
    """
    try:
        return _check_members(getattr(client, operation)(**arguments), members, operation)
    except _UNREADABLE as error:
        raise UnreadableReplyError(operation) from error


class Calls:
    """Glue's operations, on one catalog.

    Raises the errors of botocore, UnreadableReplyError, and LostReplyError for changes.
    """

    def __init__(self, client: Callable[[], Any], catalog_id: str | None) -> None:
        self._client = client
        self._watched: Any = None
        self._common = {"CatalogId": catalog_id} if catalog_id is not None else {}

    def shape(self, name: str) -> Any:
        """Return a shape of botocore's service model, without a call."""
        return self._client().meta.service_model.shape_for(name)

    def read(self, operation: str, member: str, **arguments: Any) -> Mapping[str, Any]:
        """Return a member of a response, which must have a ``Name``."""
        response = ask(self._client(), operation, (member,), **{**self._common, **arguments})
        found: Mapping[str, Any] = response[member]
        if not found.get("Name"):
            raise UnreadableReplyError(operation)
        return found

    def read_all(self, operation: str, member: str, **arguments: Any) -> Iterator[Any]:
        """Yield the items of all pages, in one call for each page."""
        pages = self._client().get_paginator(operation)
        size = {"PageSize": _PAGE}
        try:
            for page in pages.paginate(**self._common, **arguments, PaginationConfig=size):
                yield from _check_members(page, (member,), operation)[member]
        except _UNREADABLE as error:
            raise UnreadableReplyError(operation) from error

    def change(self, operation: str, **arguments: Any) -> None:
        """Send a change, which botocore may send several times.

        Raises:
            LostReplyError: An attempt whose reply was lost may have succeeded; the response to a
                later attempt does not show it.
        """
        client = self._client()
        if client is not self._watched:
            client.meta.events.register(
                "needs-retry.glue", _record_attempt, "lance-bridge-attempts"
            )
            self._watched = client
        with _attempts.watch():
            try:
                getattr(client, operation)(**{**self._common, **arguments})
            except _UNREADABLE as error:
                raise LostReplyError(operation) from error
            except (ClientError, BotoCoreError) as error:
                if _attempts.unsure:
                    raise LostReplyError(operation) from safe_cause(error)
                raise
            if _attempts.unsure:
                raise LostReplyError(operation)

    def require_comparison(self, path: Path, table: Mapping[str, Any]) -> None:
        """Check that the server compares the VersionId of UpdateTable, with one that no entry has.

        The probe sends the entry's current content. Glue refuses it; a server that ignores a
        VersionId accepts it, and the entry is unchanged.

        Raises:
            UnsupportedOperationError: there is nothing to compare, or commits could be lost.
            ConcurrentModificationError: the reply to the probe was lost.
            TableNotFoundError
        """
        version = table.get("VersionId")
        if version is None:
            raise unsupported(f"Table '{display(path)}' has no version of its entry to compare")
        try:
            self.change(
                "update_table",
                DatabaseName=path[-2],
                TableInput=restrict_to_shape(self.shape("TableInput"), table),
                SkipArchive=True,
                VersionId=f"9{version}",
            )
        except LostReplyError as error:
            raise concurrent_modification(path) from error
        except ClientError as error:
            if is_a(error, CHANGED):
                return
            if is_a(error, ABSENT):
                raise table_not_found(path) from error
            raise
        raise unsupported(
            f"Table '{display(path)}' cannot be managed by this catalog: its server ignores the "
            "VersionId of UpdateTable, so that commits would overwrite each other. AWS Glue "
            "compares it"
        )


def _record_attempt(
    caught_exception: Exception | None = None,
    response: tuple[Any, Mapping[str, Any]] | None = None,
    **_: object,
) -> None:
    """Record whether the outcome of an attempt is unknown.

    botocore calls this after each attempt, but raises only the error of the last one.
    """
    if not _attempts.watching:
        return
    if response is None:
        if caught_exception is not None and not isinstance(caught_exception, NEVER_SENT):
            _attempts.unsure = True
        return
    http, parsed = response
    code = parsed.get("Error", {}).get("Code")
    if http.status_code < 300:
        _attempts.unsure = not _is_success(http.content)
    elif http.status_code >= 500 or code in _UNCERTAIN:
        _attempts.unsure = True


def _is_success(content: bytes) -> bool:
    """Return False for content that Glue never sends, although botocore accepts it.

    It may come from a proxy, and the change may never have reached Glue.
    """
    try:
        return not content or json.loads(content) == {}
    except ValueError:
        return False


def name_of(entry: Mapping[str, Any]) -> str:
    """Return the name of a listed item. Raises UnreadableReplyError if it has none."""
    if not entry.get("Name"):
        raise UnreadableReplyError("a listing")
    return str(entry["Name"])


def _check_members(
    response: Mapping[str, Any], members: Iterable[str], operation: str
) -> Mapping[str, Any]:
    """Require members in a response; botocore parses anything but JSON as an empty one."""
    if not all(member in response for member in members):
        raise UnreadableReplyError(operation)
    return response


# -- sessions, clients and credentials -------------------------------------------------------------

NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
"""What botocore raises if it had no connection to send the request over."""

_LONGEST_PAUSE = 20
"""botocore's maximum wait between attempts, in seconds."""
_GUARANTEED_SECONDS = 600
"""botocore refreshes temporary credentials before they are valid for less time."""


class Session:
    """Creates clients of AWS's services. Safe to share between threads, and across a fork.

    Raises:
        InvalidInputError: there is no region, or no such profile.
    """

    def __init__(self, config: GlueConfig) -> None:
        self._config = config
        redact_logs()
        try:
            self._reset()
            region = self._boto.region_name
        except ProfileNotFound as error:
            raise invalid(f"impl=glue: property 'profile_name' (or AWS_PROFILE): {error}") from None
        except ConfigParseError as error:
            raise invalid(f"impl=glue: AWS's configuration cannot be read: {error}") from error
        if not region:
            raise invalid(
                "impl=glue: property 'region' is required: neither the environment "
                "(AWS_DEFAULT_REGION) nor the profile has one"
            )
        if not is_region(region):
            raise invalid(f"impl=glue: the environment's region {region[:60]!r} is not a name")
        self.region: str = region
        _sessions.add(self)

    def _reset(self) -> None:
        """Discard connections and temporary credentials, as a forked child must."""
        config = self._config
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, float | None], Any] = {}
        self._storage_endpoint: dict[str, str] | None = None
        self._role = _Role(config) if config.assume_role_arn else None
        core = _create_session(config, self._role)
        self._boto = boto3.Session(botocore_session=core, region_name=config.region)

    def client(self, service: str, endpoint: str | None) -> Any:
        """Return the client of a service, the same for all threads.

        There is another one for `lance_bridge.attempts.one_attempt`: botocore has no retries and
        time limits of calls.

        Raises:
            botocore.exceptions.NoCredentialsError: none were found. The next call tries again.
        """
        seconds = attempt_seconds()
        key = (service, seconds)
        with self._lock:
            if key not in self._clients:
                self._credentials()
                config = client_config(self._config)
                if seconds is not None:
                    config = config.merge(_one_attempt(seconds))
                created = self._boto.client(service, endpoint_url=endpoint, config=config)
                created.meta.events.register(
                    "needs-retry", partial(_warn_unreachable, self._config)
                )
                if self._config.access_key_id is not None and self._role is None:
                    created.meta.events.register(
                        "needs-retry", partial(_retry_refused, self._config.renewal)
                    )
                self._clients[key] = created
            return self._clients[key]

    def _credentials(self) -> Any:
        found = self._boto.get_credentials()
        if found is None:
            raise NoCredentialsError()
        return found

    def storage_credentials(self) -> tuple[Any, int | None]:
        """Return credentials (a consistent key, secret and token), and when they expire.

        The time is in milliseconds since 1970, or None if they are not known to expire. botocore
        refreshes them, once for all users.
        """
        with self._lock:
            credentials = self._credentials()
        frozen = credentials.get_frozen_credentials()
        if not isinstance(credentials, RefreshableCredentials):
            return frozen, None
        expires = self._role.expiries.get(frozen.access_key) if self._role is not None else None
        if expires is None:
            expires = datetime.now(timezone.utc).timestamp() + _GUARANTEED_SECONDS
        return frozen, int(expires * 1000)

    def storage_endpoint(self) -> dict[str, str]:
        """Return the options with the endpoint of S3; none if Lance uses that by itself."""
        with self._lock:
            if self._storage_endpoint is None:
                self._storage_endpoint = s3_endpoint(self._boto, self.region)
            return self._storage_endpoint

    def close(self) -> None:
        """Close connections; clients open new ones when used again."""
        with self._lock:
            for client in self._clients.values():
                client.close()

    def partition(self) -> str:
        """Return the first part of ARNs in this region (``aws``, ``aws-cn``, …)."""
        return str(self._boto.get_partition_for_region(self.region))


def _warn_unreachable(
    config: GlueConfig,
    attempts: int = 0,
    caught_exception: Exception | None = None,
    **_: object,
) -> None:
    """Log, once per call, that a service accepts no connection; called after each attempt."""
    retries = config.max_retries if attempt_seconds() is None else 0
    if attempts == 1 and retries and isinstance(caught_exception, NEVER_SENT):
        pauses = sum(min(2**number, _LONGEST_PAUSE) for number in range(retries))
        logger.warning(
            "AWS cannot be reached (%s); trying again up to %d times, for up to %g s "
            "(max_retries, client.connect-timeout)",
            caught_exception, retries, pauses + retries * config.connect_timeout,
        )  # fmt: skip


def client_config(config: GlueConfig) -> Config:
    """Return botocore's settings for time limits and retries."""
    return Config(
        retries={"mode": config.retry_mode, "total_max_attempts": config.max_retries + 1},
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        max_pool_connections=config.pool_size,
        user_agent_extra="lance-bridge",
    )


def _one_attempt(seconds: float) -> Config:
    """Return botocore's settings for one attempt, without another one."""
    retries = {"mode": "standard", "total_max_attempts": 1}
    connect = connect_within_attempt(seconds)
    return Config(retries=retries, connect_timeout=connect, read_timeout=seconds)


def _create_session(config: GlueConfig, role: _Role | None = None) -> botocore.session.Session:
    """Return a session with the credentials of the properties, or with those of the role."""
    created = botocore.session.Session(profile=config.profile_name)
    created.register_component("data_loader", _models(created.get_config_variable("data_path")))
    if role is not None:
        created.register_component("credential_provider", CredentialResolver([role]))
    elif config.access_key_id is not None:
        provider = _KeyPairProvider(config.renewal)
        created.register_component("credential_provider", CredentialResolver([provider]))
    return created


class _Models(Loader):  # type: ignore[misc]  # botocore has no types
    """botocore's large models of AWS's services, shared by all sessions."""

    def __init__(self, directories: list[str]) -> None:
        super().__init__(extra_search_paths=directories)
        self._load_lock = threading.RLock()

    @property
    def search_paths(self) -> list[str]:
        """The directories of models; a copy, because every session of boto3 adds to it."""
        return list(super().search_paths)

    def load_service_model(self, *args: Any, **arguments: Any) -> Any:
        """Load one model at a time: botocore caches a model before it is complete."""
        with self._load_lock:
            return super().load_service_model(*args, **arguments)


@cache
def _models(data_path: str | None) -> _Models:
    """Return the loader of models for a setting of AWS_DATA_PATH."""
    return _Models(create_loader(data_path).search_paths if data_path else [])


class _Role(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    """Provides the credentials of the role, which botocore fetches and refreshes."""

    METHOD = "assume-role"
    CANONICAL_NAME = "lance-bridge-assume-role"

    def __init__(self, config: GlueConfig) -> None:
        super().__init__()
        self._config = config
        self.expiries: dict[str, float] = {}
        """When credentials of the role expire, in seconds since 1970, by their access key."""

    def load(self) -> RefreshableCredentials:
        """Assume the role; called once by botocore, which then refreshes the credentials."""
        # With botocore's own limits (15 and 10 minutes before the end), short sessions would be
        # refreshed with every call.
        advisory = min(900, self._config.assume_role_timeout_sec // 4)
        fetcher = self._create_fetcher(advisory)
        refresh = partial(self._fetch, fetcher)
        return RefreshableCredentials.create_from_metadata(
            refresh(),
            refresh,
            self.METHOD,
            advisory_timeout=advisory,
            mandatory_timeout=min(_GUARANTEED_SECONDS, advisory // 2),
        )

    def _create_fetcher(self, window: int) -> AssumeRoleCredentialFetcher:
        config = self._config
        base = _create_session(config)
        source = base.get_credentials()
        if source is None:
            raise NoCredentialsError()
        arguments: dict[str, Any] = {
            "RoleSessionName": config.assume_role_session_name,
            "DurationSeconds": config.assume_role_timeout_sec,
        }
        if config.assume_role_external_id is not None:
            arguments["ExternalId"] = config.assume_role_external_id
        if config.assume_role_source_identity is not None:
            arguments["SourceIdentity"] = config.assume_role_source_identity
        create = partial(
            base.create_client,
            region_name=config.assume_role_region or config.region,
            endpoint_url=config.assume_role_endpoint,
            config=client_config(config),
        )
        return AssumeRoleCredentialFetcher(
            create, source, config.assume_role_arn, arguments, expiry_window_seconds=window
        )

    def _fetch(self, fetcher: AssumeRoleCredentialFetcher) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self._fetch_with_current_key_pair(fetcher)
        expires = datetime.fromisoformat(metadata["expiry_time"].replace("Z", "+00:00"))
        newest = list(self.expiries.items())[-1:]  # callers may still use the previous ones
        self.expiries = dict([*newest, (metadata["access_key"], expires.timestamp())])
        return metadata

    def _fetch_with_current_key_pair(self, fetcher: AssumeRoleCredentialFetcher) -> Any:
        """Assume the role; read the key pair again if STS refuses it."""
        try:
            return fetcher.fetch_credentials()
        except ClientError as error:
            if self._config.access_key_id is None or not is_a(error, *UNAUTHENTICATED):
                raise
            renewal = _renew_refused(self._config.renewal)
            if not renewal.changed:
                error.response[ADVICE] = renewal.advice
                raise
        try:
            return fetcher.fetch_credentials()
        except ClientError as error:
            if is_a(error, *UNAUTHENTICATED):
                error.response[ADVICE] = renewal.advice
            raise


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    _models.cache_clear()
    for session in list(_sessions):
        session._reset()


os.register_at_fork(after_in_child=_after_fork_in_child)


# -- logs -----------------------------------------------------------------------------------------

_LOGGERS = (
    "auth", "awsrequest", "client", "credentials", "endpoint", "hooks", "httpsession", "parsers",
    "retryhandler", "tokens", "utils",
)  # fmt: skip
_NAMES = (
    r"x-amz-security-token|(?:aws_?)?secret_?access_?key|(?:aws_?)?session_?token|access_?token|"
    r"web_?identity_?token|client_?secret|\btoken"
)
_SECRET = re.compile(rf"((?:{_NAMES})['\"]?\s*[:=>]\s*b?['\"]?)[^\s'\"<&,;}}\]]+", re.IGNORECASE)


class _RedactingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = _SECRET.sub(r"\1***", text)
        if clean != text:
            record.msg, record.args = clean, ()
        return True


_filter = _RedactingFilter()


def redact_logs() -> None:
    """Replace secret keys and session tokens by ``***`` in botocore's logs. Idempotent.

    Loggers are global, so this affects all clients of botocore in the process.
    """
    for name in _LOGGERS:
        logging.getLogger(f"botocore.{name}").addFilter(_filter)


# -- key pair --------------------------------------------------------------------------------------
# botocore signs each attempt at a request with the credentials as they are then, so a request that
# was refused is signed with the new key pair if botocore sends it again. The properties are read
# again when a service refuses their key pair.

_RENEWAL = "lance-bridge-renewal"
"""The key in the context of a request for what its renewal was."""


class _Signer(threading.local):
    """The configuration with the key pair that this thread signed with last."""

    config: GlueConfig | None = None


_signer = _Signer()


class _KeyPair(Credentials):  # type: ignore[misc]  # botocore has no types
    """Credentials that change with the properties."""

    def __init__(self, renewal: SecretRenewal[GlueConfig]) -> None:
        super().__init__(*_values(renewal.config), method="lance-bridge")
        self._renewal = renewal

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the key pair of now; botocore calls this for each signature."""
        _signer.config = self._renewal.config
        return ReadOnlyCredentials(*_values(_signer.config))


class _KeyPairProvider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    """Provides the key pair of the properties."""

    METHOD = "lance-bridge"
    CANONICAL_NAME = "lance-bridge-key-pair"

    def __init__(self, renewal: SecretRenewal[GlueConfig]) -> None:
        super().__init__()
        self._renewal = renewal

    def load(self) -> Credentials:
        """Return the key pair."""
        return _KeyPair(self._renewal)


def _values(config: GlueConfig) -> tuple[str, str, str | None]:
    secret, token = config.secret_access_key, config.session_token
    return (
        config.access_key_id or "",
        secret.get_secret_value() if secret is not None else "",
        token.get_secret_value() if token is not None else None,
    )


def _renew_refused(renewal: SecretRenewal[GlueConfig]) -> Renewal:
    """Read the key pair again that this thread signed its last request with."""
    return renewal.renew(_signer.config or renewal.config)


def _retry_refused(
    renewal: SecretRenewal[GlueConfig],
    request_dict: Mapping[str, Any],
    response: tuple[Any, MutableMapping[str, Any]] | None = None,
    **_: object,
) -> float | None:
    """Return 0 seconds to wait if botocore shall send a refused request again, else None.

    botocore calls this after each attempt. A request whose signature is refused was not executed,
    so that changes may be repeated, too.
    """
    if response is None or response[1].get("Error", {}).get("Code") not in UNAUTHENTICATED:
        return None
    context = request_dict["context"]
    known: Renewal | None = context.get(_RENEWAL)
    made = context[_RENEWAL] = known or _renew_refused(renewal)
    if known is None and made.changed:
        return 0.0
    response[1][ADVICE] = made.advice
    return None
