"""The report of a run: what was measured, held against what, and what came of it, for people to read and keep."""

from paritygate.pipelines.report.write import write_reports

__all__ = ["write_reports"]
