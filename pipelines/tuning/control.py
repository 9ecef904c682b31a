"""A model's configuration on a running Triton: read, replaced for a while, and given back as it was.

Triton takes a configuration with a request to load, in place of the model's file. It keeps that until the file changes:
a load without one does not bring the file's back (seen on 2.51). So what the server had is given back as it was read.

What is loaded for a while has a mark, a tag of metrics, which says whose it is and until when. So two that tune one
model see each other, on whichever machines they run, and a load by anybody else is seen.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from paritygate.errors import MeasurementError, ParitygateError
from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.pipelines.tuning.server_counts import ServerCounts, counts_in
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.words import in_short, said_in

_OK = 200
_JSON = {"Content-Type": "application/json"}
_MARK = "paritygate_tune"


class NoControl(Exception):  # noqa: N818 - it is an answer, and no error
    """The server does not let anybody choose a configuration; the message is what it says."""


class ModelControl:
    """One model on one server."""

    def __init__(self, client: HttpClient, prefix: str, name: str, version: int) -> None:
        """Read the configuration that the server has.

        Args:
            client: What asks the server; its time limit is that of a load as well.
            prefix: What stands before the protocol's own paths.
            name: The model's name.
            version: The version that is measured.

        Raises:
            MeasurementError: The server does not answer, or somebody else tunes the model on it.
            NoControl: It tells no configuration.
        """
        self._client = client
        self._model = f"{quote(prefix)}/v2/models/{quote(name)}"
        self._load = f"{quote(prefix)}/v2/repository/models/{quote(name)}/load"
        self._version = version
        self.is_changed = False
        self._mark = ""
        self._marks: set[str] = set()
        found = self.config()
        if found is None:
            msg = "the server returns no configuration of the model"
            raise NoControl(msg)
        if _until(_mark_of(found)) > time.time():
            msg = f"another tune measures {name} on this server"
            raise MeasurementError(msg, hint="wait until it has ended: two at once would measure each other")
        self.before: Mapping[str, Any] = _without_mark(found)

    @property
    def settings(self) -> Settings:
        """The settings that the server had."""
        return settings_of(self.before)

    def config(self) -> dict[str, Any] | None:
        """Return the configuration that the server has now; None where it tells none."""
        status, _, body = self._client.exchange("GET", f"{self._model}/config", None, {})
        found = as_json(body) if status == _OK else None
        return found if isinstance(found, dict) and "max_batch_size" in found else None

    def check(self) -> None:
        """Load what the server has, to see whether it lets anybody load.

        Raises:
            NoControl: It does not.
        """
        why = self._ask(self.before)
        if why:
            raise NoControl(why)

    def choose(self, settings: Settings, seconds: float) -> str:
        """Load the model with other settings; return why the server does not, empty if it did.

        Args:
            settings: The settings.
            seconds: For how long nobody else is to tune the model, unless it is loaded again.

        Raises:
            MeasurementError: The server does not answer, or says that it did and has other settings.
        """
        # What is not answered may have been done.
        self.is_changed = True
        # What is answered out of a cache says nothing of the settings, and the same rows are sent again and again.
        uncached = {name: value for name, value in self.before.items() if name != "response_cache"}
        marked, before = _marked(with_settings(uncached, settings), seconds), self._mark
        self._mark = _mark_of(marked)
        self._marks.add(self._mark)
        why = self._ask(marked)
        if why:
            self._mark = before
        else:
            self.check_unchanged(settings)
        return why

    def check_unchanged(self, settings: Settings) -> None:
        """Check that the server has the configuration that it was told to load last, or that it had before.

        Raises:
            MeasurementError: It has another one: what was measured is of unknown settings.
        """
        found = self.config() or {}
        if settings_of(found) != settings or _mark_of(found) != self._mark:
            msg = f"the server was to have {settings}, and has {settings_of(found)} that somebody else loaded"
            raise MeasurementError(msg, hint="check that nothing else loads the model meanwhile, and tune again")

    def restore(self) -> None:
        """Give the server back the configuration that it had.

        Raises:
            MeasurementError: It does not answer, or does not take it.
        """
        if not self.is_changed:
            return
        found = self.config() or {}
        if found == self.before:
            self.is_changed = False
            return
        if _mark_of(found) not in self._marks:
            msg = "the server's configuration was not restored because somebody else loaded another one"
            raise MeasurementError(msg, hint=f"where that is not meant, load it by hand: POST {self._load}")
        why = self._ask(self.before)
        if why or self.config() != self.before:
            msg = f"the server's configuration was not restored: {why or 'it has another one now'}"
            raise MeasurementError(msg, hint=f"load it by hand: POST {self._load}, or start the server again")
        self.is_changed = False

    def reload(self) -> Settings:
        """Let the server read its own files, and return the settings that it has then.

        Raises:
            MeasurementError: The server does not answer.
        """
        self._ask(None)
        return settings_of(self.config() or {})

    @property
    def has_cache(self) -> bool:
        """Whether the server answers what it answered before without running the model."""
        return bool((self.before.get("response_cache") or {}).get("enable"))

    def counts(self) -> ServerCounts | None:
        """Return what the server has counted of the model by now; None where it does not say."""
        status, _, body = self._client.exchange("GET", f"{self._model}/versions/{self._version}/stats", None, {})
        try:
            return None if status != _OK else counts_in(as_json(body)["model_stats"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, ParitygateError):
            return None

    def _ask(self, config: Mapping[str, Any] | None) -> str:
        asked = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, _, body = self._client.exchange("POST", self._load, json.dumps(asked).encode(), _JSON)
        return "" if status == _OK else f"HTTP {status}: {in_short(said_in(body))}"


def _marked(config: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    mark = f"{uuid.uuid4().hex} until {time.time() + seconds:.0f}"
    return {**config, "metric_tags": {**(config.get("metric_tags") or {}), _MARK: mark}}


def _without_mark(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the mark that a tune left which was killed."""
    if not _mark_of(config):
        return dict(config)
    tags = {name: value for name, value in config["metric_tags"].items() if name != _MARK}
    found = {name: value for name, value in config.items() if name != "metric_tags"}
    return {**found, "metric_tags": tags} if tags else found


def _mark_of(config: Mapping[str, Any]) -> str:
    return str((config.get("metric_tags") or {}).get(_MARK, ""))


def _until(mark: str) -> float:
    """Return until when a mark counts, in seconds since 1970; 0 of none."""
    _, _, until = mark.partition(" until ")
    return float(until) if until.isdecimal() else 0.0
