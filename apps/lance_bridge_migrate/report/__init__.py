"""The report of a migration: one page for people, with plots, and the same as JSON for programs.

report = report_of(Migrations().get(id).record())
page, data = write(report, Path("report.html"))
"""

from lance_bridge.extras import require

require("report", "jinja2")

from .model import Report  # noqa: E402 - its packages are checked first
from .page import write  # noqa: E402 - the same
from .summary import report_of  # noqa: E402 - the same

__all__ = ["Report", "report_of", "write"]
