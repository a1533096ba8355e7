"""What is wrong with a catalog and the tables in it, and the command that mends each.

`diagnose` looks and changes nothing. It goes page by page. What cannot be known, because the
catalog or the storage does not answer, is a finding of its own, and never counts as absent.
"""

from .diagnosis import OLD_ENOUGH, Diagnosis, diagnose
from .findings import Finding, Kind

__all__ = ["OLD_ENOUGH", "Diagnosis", "Finding", "Kind", "diagnose"]
