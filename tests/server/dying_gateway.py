"""The installed program, which kills itself at a step of the protocol of managed tables.

``python -m server.dying_gateway STEP serve …``, with a step of `managed.death`.
"""

from __future__ import annotations

import sys

from managed import death

from lance_bridge_cli import main

if __name__ == "__main__":
    death.at(sys.argv.pop(1))
    main()
