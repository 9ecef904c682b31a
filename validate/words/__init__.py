"""The words of checks: the one place that turns facts into sentences."""
