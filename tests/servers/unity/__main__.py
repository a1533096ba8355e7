"""Run a double as a process of its own: ``python -m servers.unity --dialect oss-0.6 --port 0``.

Says where it answers in one line on standard output, and ends on SIGTERM or Ctrl-C. The exit code
is 1 where requests broke the published API, which are then listed on standard error.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from . import DIALECTS, UnityServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal ends it; return the exit code."""
    given = _parser().parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = UnityServer(DIALECTS[given.dialect], given.port)
    for name in given.catalog:
        server.add_catalog(name)
    server.start()
    print(server.url, flush=True)
    ended.wait()
    server.stop()
    violations = server.take_violations()
    for line in (*server.defects, *violations):
        print(line, file=sys.stderr)
    return 1 if violations or server.defects else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m servers.unity", description=__doc__)
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="oss-0.6")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--catalog", action="append", default=[], help="make this catalog; may be repeated"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
