"""Read, replace and restore a model's configuration on a running Triton.

Triton loads a configuration from a request in place of the model's file, and keeps it until the file changes. A load
without one does not restore the file's (seen on 2.51). So the server gets back the configuration that was read.

A temporary configuration has a mark, a tag of metrics with its owner and end. So two tunes of one model notice each
other on any machines, and foreign loads are noticed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from paritygate.errors import MeasurementError, ParitygateError
from paritygate.pipelines.live.metrics.server_counts import ServerCounts, counts_in
from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.words import in_short, said_in

_OK = 200
_JSON = {"Content-Type": "application/json"}
_MARK = "paritygate_tune"


class NoControl(Exception):  # noqa: N818 - it is an answer, and no error
    """The server does not allow another configuration; the message is its own."""


class ModelControl:
    """One model on one server."""

    def __init__(self, client: HttpClient, prefix: str, name: str, version: int) -> None:
        """Read the configuration of the measured version; `prefix` is before the protocol's own paths.

        The client's time limit also applies to loads.

        Raises:
            MeasurementError: The server does not answer, or somebody else tunes the model on it.
            NoControl: It returns no configuration.
        """
        self._client = client
        self._model = f"{quote(prefix)}/v2/models/{quote(name)}"
        self._load = f"{quote(prefix)}/v2/repository/models/{quote(name)}/load"
        self._version = version
        self.is_changed = False
        self._mark = ""
        self._marks: set[str] = set()
        config = self.config()
        if config is None:
            raise NoControl("the server returns no configuration of the model")
        if _until(_mark_of(config)) > time.time():
            msg = f"another tune measures {name} on this server"
            raise MeasurementError(msg, hint="wait until it has ended: two at once would disturb each other")
        self.before: Mapping[str, Any] = _without_mark(config)

    @property
    def settings(self) -> Settings:
        """The settings that the server had."""
        return settings_of(self.before)

    def config(self) -> dict[str, Any] | None:
        """Return the server's current configuration, or None."""
        status, _, body = self._client.exchange("GET", f"{self._model}/config", None, {})
        data = as_json(body) if status == _OK else None
        return data if isinstance(data, dict) and "max_batch_size" in data else None

    def check(self) -> None:
        """Load the server's own configuration; raise NoControl if it allows no loads."""
        why = self._ask(self.before)
        if why:
            raise NoControl(why)

    def choose(self, settings: Settings, seconds: float) -> str:
        """Load the model with other settings; return why the server refuses, or an empty text.

        For so many seconds, or until the next load, nobody else may tune the model.

        Raises:
            MeasurementError: The server does not answer, or has other settings after it accepted them.
        """
        # A request without an answer may have succeeded.
        self.is_changed = True
        # Cached responses reveal nothing about the settings, and the same rows are sent repeatedly.
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
        """Check that the server has the last loaded configuration, or the original one.

        Raises:
            MeasurementError: It has another one, so the measured settings are unknown.
        """
        config = self.config() or {}
        if settings_of(config) != settings or _mark_of(config) != self._mark:
            msg = f"the server has settings that somebody else loaded (got {settings_of(config)}, expected {settings})"
            raise MeasurementError(msg, hint="check that nothing else loads the model meanwhile, and tune again")

    def restore(self) -> None:
        """Restore the server's original configuration; raise MeasurementError if it does not accept it."""
        if not self.is_changed:
            return
        config = self.config() or {}
        if config == self.before:
            self.is_changed = False
            return
        if _mark_of(config) not in self._marks:
            msg = "the server's configuration was not restored because somebody else loaded another one"
            raise MeasurementError(msg, hint=f"if that is wrong, load it by hand: POST {self._load}")
        why = self._ask(self.before)
        if why or self.config() != self.before:
            msg = f"the server's configuration was not restored: {why or 'it has another one now'}"
            raise MeasurementError(msg, hint=f"load it by hand: POST {self._load}, or start the server again")
        self.is_changed = False

    def reload(self) -> Settings:
        """Let the server read its own files, and return its new settings."""
        self._ask(None)
        return settings_of(self.config() or {})

    @property
    def has_cache(self) -> bool:
        """Whether the server answers repeated requests without running the model."""
        return bool((self.before.get("response_cache") or {}).get("enable"))

    def counts(self) -> ServerCounts | None:
        """Return the server's current counts of the model, or None."""
        status, _, body = self._client.exchange("GET", f"{self._model}/versions/{self._version}/stats", None, {})
        try:
            return None if status != _OK else counts_in(as_json(body)["model_stats"][0])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, ParitygateError):
            return None

    def _ask(self, config: Mapping[str, Any] | None) -> str:
        request = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, _, body = self._client.exchange("POST", self._load, json.dumps(request).encode(), _JSON)
        return "" if status == _OK else f"HTTP {status}: {in_short(said_in(body))}"


def _marked(config: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    mark = f"{uuid.uuid4().hex} until {time.time() + seconds:.0f}"
    return {**config, "metric_tags": {**(config.get("metric_tags") or {}), _MARK: mark}}


def _without_mark(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the mark of a killed tune."""
    if not _mark_of(config):
        return dict(config)
    tags = {name: value for name, value in config["metric_tags"].items() if name != _MARK}
    unmarked = {name: value for name, value in config.items() if name != "metric_tags"}
    return {**unmarked, "metric_tags": tags} if tags else unmarked


def _mark_of(config: Mapping[str, Any]) -> str:
    return str((config.get("metric_tags") or {}).get(_MARK, ""))


def _until(mark: str) -> float:
    """Return the end of a mark in seconds since 1970; 0 without one."""
    _, _, until = mark.partition(" until ")
    return float(until) if until.isdecimal() else 0.0
