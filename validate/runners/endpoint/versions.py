"""The model versions that a server runs, and the errors where none is the requested one."""

from __future__ import annotations

from collections.abc import Iterable

from paritygate.errors import BackendError
from paritygate.models.endpoint import Endpoint
from paritygate.validate.runners.endpoint.json_values import shown
from paritygate.validate.runners.endpoint.words import in_short


class AnsweredVersions:
    """The versions of the answers, in the order in which they came."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Take the endpoint, whose version may be requested."""
        self._endpoint = endpoint
        self._found: dict[str, None] = {}

    def add(self, said: object) -> None:
        """Add the version of an answer; many servers give none.

        BackendError is raised where it is another than the requested one, or no version.
        """
        if isinstance(said, bool) or not isinstance(said, str | int | None):
            msg = f"the server returned version {shown(said)} of {self._endpoint.model}, which is not a version"
            raise BackendError(msg, hint="use a server of the Open Inference Protocol, version 2")
        version = in_short("" if said is None else str(said))
        if not version:
            return
        requested, model = self._endpoint.version, self._endpoint.model
        if requested and version != requested:
            msg = f"the server returned version {version} of {model}, but version {requested} was requested"
            raise BackendError(
                msg, hint=f"write /versions/{version} after the name, or nothing for the server's choice"
            )
        self._found[version] = None

    @property
    def found(self) -> tuple[str, ...]:
        """Return the versions."""
        return tuple(self._found)


def no_such_version(endpoint: Endpoint, listed: Iterable[str], said: str = "") -> BackendError:
    """Return the error of a version that a server does not have."""
    versions = tuple(listed)
    words = f": {said}" if said else ""
    msg = f"the server at {endpoint.host} has no version {endpoint.version} of {endpoint.model} (it has: "
    msg += f"{', '.join(versions)}){words}"
    return BackendError(
        msg, hint=f"write /versions/{versions[-1]} after the name, or nothing for the server's choice; or load it there"
    )
