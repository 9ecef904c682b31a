"""Releases: promoting what was chosen, and the repository that it goes to."""

from pathlib import Path

# Where releases go unless a spec or an option says otherwise: all that a comparison needs of the repository.
DEFAULT_REPOSITORY = Path("artifacts/repository")
