"""The report page: run folders in, one HTML file out that needs neither network nor account.

Here lives the page alone; whatever it says in words or ranks comes from analysis.
"""

from cwfed.report.page.discover import find_runs
from cwfed.report.page.html import write_page
from cwfed.report.page.payload import make_payload

__all__ = ["find_runs", "make_payload", "write_page"]
