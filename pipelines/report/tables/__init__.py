"""The tables of a report, without their looks."""
