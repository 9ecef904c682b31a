"""Which version of a model a server answers as, and what is said where that is none that was asked for."""

from __future__ import annotations

from collections.abc import Iterable

from paritygate.errors import BackendError
from paritygate.models.endpoint import Endpoint
from paritygate.validate.runners.endpoint.json_values import shown
from paritygate.validate.runners.endpoint.words import in_short


class AnsweredVersions:
    """The versions that answers say they are of, in the order in which they were met."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Take which version is asked for, if one is."""
        self._endpoint = endpoint
        self._found: dict[str, None] = {}

    def add(self, said: object) -> None:
        """Keep the version that an answer says it is of; many servers say none.

        Raises:
            BackendError: It is another than the one that was asked for, or no version.
        """
        if isinstance(said, bool) or not isinstance(said, str | int | None):
            msg = f"the server returned version {shown(said)} of {self._endpoint.model}, which is not a version"
            raise BackendError(msg, hint="the protocol is the Open Inference Protocol, version 2")
        version = in_short("" if said is None else str(said))
        if not version:
            return
        asked, model = self._endpoint.version, self._endpoint.model
        if asked and version != asked:
            msg = f"the server returned version {version} of {model}, but version {asked} was requested"
            raise BackendError(
                msg, hint=f"ask /versions/{version} behind the name, or none for what the server chooses"
            )
        self._found[version] = None

    @property
    def found(self) -> tuple[str, ...]:
        """The versions."""
        return tuple(self._found)


def no_such_version(endpoint: Endpoint, listed: Iterable[str], said: str = "") -> BackendError:
    """Return the error of a version that a server does not have."""
    versions = tuple(listed)
    words = f": {said}" if said else ""
    msg = f"the server at {endpoint.host} has no version {endpoint.version} of {endpoint.model} (it has: "
    msg += f"{', '.join(versions)}){words}"
    return BackendError(
        msg, hint=f"ask /versions/{versions[-1]} behind the name, or none for what the server chooses; or load it there"
    )
