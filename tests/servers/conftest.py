from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.unity import OPEN_SOURCE_0_6, UnityServer


@pytest.fixture
def new() -> Iterator[UnityServer]:
    """Return a Unity double that has nothing."""
    with UnityServer(OPEN_SOURCE_0_6) as running:
        yield running
