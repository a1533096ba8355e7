"""Run the conformance kit against a configured catalog; see `command`.

python -m lance_bridge.testing hive -p uri=thrift://metastore:9083 --data-root /mnt/tables
"""

from __future__ import annotations

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
