"""The Python process that answers the SQL catalog of one Spark driver.

The Java part starts ``python -m lance_bridge_spark.sql.driver_service`` and writes calls to its
standard input; answers go to its standard output, in any order. The process ends with its input.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..channel import Channel, freeze_imports, open_standard_channel

_THREADS = 64
"""Calls that are answered at once; more wait. Most of them wait for a catalog or a store."""


def serve(channel: Channel) -> None:
    """Answer calls until there are no more."""
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
    """Answer calls until the driver ends."""
    channel = open_standard_channel()
    try:
        serve(channel)
    except (EOFError, BrokenPipeError):
        # The driver has ended: calls that still run are as safe to end as in a process that dies.
        os._exit(0)


if __name__ == "__main__":
    main()
