"""Causes: the reason why a candidate differs, found in its files or by a trial with changed inputs."""
