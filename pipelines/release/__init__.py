"""Releases: promoting what was chosen, and the repository that it goes to."""

from pathlib import Path

# Where releases go, and where commands look for them, unless a spec or an option says otherwise. It stands here since a
# comparison needs this of the repository, and nothing else.
DEFAULT_REPOSITORY = Path("artifacts/repository")
