"""The application of a configured server: what every worker process makes at its start."""

from __future__ import annotations

from starlette.applications import Starlette

from .allocator import limit_heaps
from .app import create_app
from .authentication.chain import AuthenticatorChain
from .catalogs import connect_catalogs, root_namespace
from .configuration.settings import ServerSettings
from .configuration.source import SettingsSource
from .gateway import Gateway
from .principals import Anonymous, Authenticator


def app_from_environment() -> Starlette:
    """Return the application that ``$LANCE_BRIDGE_SERVER_CONFIG`` configures, for any ASGI server.

    Listeners, TLS, workers and the log are that server's own affair, and are ignored here.

    Raises:
        InvalidInputError: (13) the variable is not set, or the configuration is wrong.
        UnsupportedOperationError: (0) a catalog needs an extra that is not installed.
    """
    return app_from_source(SettingsSource.of_environment())


def app_from_source(source: SettingsSource) -> Starlette:
    """Return the application of a configuration. Raises what `app_from_environment` does."""
    return create_app(gateway_from_settings(source.read(), source))


def gateway_from_settings(settings: ServerSettings, source: SettingsSource) -> Gateway:
    """Return the gateway of a configuration. Raises what `app_from_environment` does."""
    limit_heaps()
    catalogs = connect_catalogs(settings, source.catalogs)
    return Gateway(
        root_namespace(settings, catalogs),
        authenticator=authenticator_from_settings(settings),
        authorizer=settings.authorization.make(),
        audit=settings.audit.make(),
        limits=settings.limits,
        databases=settings.databases,
    )


def authenticator_from_settings(settings: ServerSettings) -> Authenticator:
    """Return what authenticates the requests to a server.

    Raises:
        InvalidInputError: (13) the file of API keys cannot be read.
    """
    if not settings.authentication:
        return Anonymous()
    methods = [each.make() for each in settings.authentication]
    return AuthenticatorChain(methods, allow_anonymous=settings.allow_anonymous)
