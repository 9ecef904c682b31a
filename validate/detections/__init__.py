"""Outputs that hold a list of detections a row, whose order and number may differ: matched, then compared."""
