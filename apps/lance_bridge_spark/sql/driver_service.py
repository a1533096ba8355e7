"""The Python process that handles the calls of one Spark driver's SQL catalog.

The Java part starts ``python -m lance_bridge_spark.sql.driver_service`` and writes calls to its
standard input; it writes responses to its standard output, in any order. The process exits at the
end of its input.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..channel import Channel, freeze_imports, open_standard_channel

_THREADS = 64
"""Calls that run concurrently; more are queued. Most of them wait for a catalog or a store."""


def serve(channel: Channel) -> None:
    """Respond to calls until the end of the input."""
    from .service import respond  # noqa: PLC0415 - what it imports may print

    freeze_imports()

    def take(call: dict[str, Any], parts: list[bytes]) -> None:
        channel.write({"id": call["id"], "begun": True})
        fields, answered = respond(call, parts)
        channel.write({**fields, "id": call["id"]}, answered)

    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="call")
    channel.write({"ready": True})
    while True:
        threads.submit(take, *channel.read())


def main() -> None:
    """Respond to calls until the driver exits."""
    channel = open_standard_channel()
    try:
        serve(channel)
    except (EOFError, BrokenPipeError):
        # The driver has exited. Stopping running calls is as safe as if the process crashed.
        os._exit(0)


if __name__ == "__main__":
    main()
