"""The states of measurements of some rows, as files hold them, and sums that no order of the parts changes."""
