"""The report of a migration: an HTML page with plots, and the same data as JSON.

report = report_of(Migrations().get(id).record())
page, data = write(report, Path("report.html"))
"""

from lance_bridge.extras import require

require("report", "jinja2")

from .model import Report, report_of  # noqa: E402 - needs the extra
from .page import write  # noqa: E402 - the same

__all__ = ["Report", "report_of", "write"]
