"""One self-contained HTML page about a run directory, and the table that compares its evaluations. Needs no torch."""

from papergym.report.page import write_report
from papergym.report.table import comparison_table, print_table, write_table

__all__ = ["comparison_table", "print_table", "write_report", "write_table"]
