"""Creates the application of a configured server, at the start of every worker process."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp

from ..authentication.chain import AuthenticatorChain
from ..catalogs import connect_callers, connect_catalogs, root_namespace
from ..configuration.authentication import ApiKeySettings, OidcSettings
from ..configuration.settings import ServerSettings
from ..configuration.source import SettingsSource
from ..gateway import Gateway
from ..login import Login
from ..principals import Anonymous, Authenticator
from .allocator import limit_heaps
from .listeners import ServedTls, tls_context
from .reloading import ReloadingApp
from .shared import Process


def app_from_environment() -> ASGIApp:
    """Return the application that ``$LANCE_BRIDGE_SERVER_CONFIG`` configures, for any ASGI server.

    Listeners, TLS, workers and the log are configured in that server, and ignored here.

    Raises:
        InvalidInputError: (13) the variable is not set, or the configuration is wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    return app_from_source(SettingsSource.of_environment())


def app_from_source(
    source: SettingsSource, process: Process | None = None, tls: ServedTls | None = None
) -> ReloadingApp:
    """Return the application of a configuration. Raises what `app_from_environment` does.

    Args:
        tls: The TLS files that a reload replaces.
    """
    gateway = gateway_from_source(source)
    return ReloadingApp(gateway, partial(gateway_from_source, source.unpinned(), tls), process)


def gateway_from_source(source: SettingsSource, tls: ServedTls | None = None) -> Gateway:
    """Read a configuration, and return its gateway. Raises what `app_from_environment` does.

    Args:
        tls: Is updated with the configuration's files, if the whole configuration is valid.
    """
    settings = source.read()
    renewed = tls_context(settings.tls) if tls and settings.tls else None
    gateway = gateway_from_settings(settings, source)
    if tls and settings.tls and renewed:
        tls.renew(settings.tls, renewed)
    return gateway


def gateway_from_settings(settings: ServerSettings, source: SettingsSource) -> Gateway:
    """Return the gateway of a configuration. Raises what `app_from_environment` does."""
    limit_heaps()
    catalogs = connect_catalogs(settings, source.catalogs)
    return Gateway(
        root_namespace(settings, catalogs),
        authenticator=authenticator_from_settings(settings),
        authorizer=settings.authorization.make(),
        limits=settings.limits,
        databases=settings.databases,
        catalogs=catalogs,
        readiness=settings.readiness,
        anonymous_metrics=settings.anonymous_metrics,
        ui=settings.ui,
        login=login_from_settings(settings),
        cors=settings.cors,
        hosts=settings.hosts(),
        callers=connect_callers(settings, source.catalogs, catalogs),
        audit=settings.audit.make(),  # last: nothing would close the file if a later step failed
    )


def authenticator_from_settings(settings: ServerSettings) -> Authenticator:
    """Return the authenticator of a server.

    Raises:
        InvalidInputError: (13) the file of API keys cannot be read.
    """
    if not settings.authentication:
        return Anonymous()
    methods = [each.make() for each in settings.authentication]
    return AuthenticatorChain(methods, allow_anonymous=settings.allow_anonymous)


def login_from_settings(settings: ServerSettings) -> Login:
    """Return the login of the catalog page.

    Raises:
        InvalidInputError: (13) a file of its settings cannot be read.
    """
    given, methods = settings.login, settings.authentication
    logins = [each.make_login() for each in methods if isinstance(each, OidcSettings)]
    return Login(
        api_keys=[each.make() for each in methods if isinstance(each, ApiKeySettings)],
        providers=[each for each in logins if each is not None],
        address=given.address,
        keys=given.read_keys(),
        seconds=given.seconds,
        idle_seconds=given.idle_seconds,
        failures=given.failures,
    )
