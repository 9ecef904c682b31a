"""A model's configuration on a running Triton: read, replaced for a while, and given back as it was.

Triton takes a configuration with a request to load, in place of the model's file. It keeps that until the file changes:
a load without one does not bring the file's back (seen on 2.51). So what the server had is given back as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from paritygate.errors import MeasurementError, ParitygateError
from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.validate.runners.endpoint.client import HttpClient, as_json
from paritygate.validate.runners.endpoint.words import in_short, said_in

__all__ = ["ModelControl", "NoControl"]

_OK = 200
_JSON = {"Content-Type": "application/json"}


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
            MeasurementError: The server does not answer.
            NoControl: It tells no configuration.
        """
        self._client = client
        self._model = f"{quote(prefix)}/v2/models/{quote(name)}"
        self._load = f"{quote(prefix)}/v2/repository/models/{quote(name)}/load"
        self._version = version
        self.is_changed = False
        found = self.config()
        if found is None:
            msg = "it tells no configuration of the model"
            raise NoControl(msg)
        self.before: Mapping[str, Any] = found

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

    def choose(self, settings: Settings) -> str:
        """Load the model with other settings; return why the server does not, empty if it did.

        Raises:
            MeasurementError: The server does not answer, or says that it did and has other settings.
        """
        # What is not answered may have been done.
        self.is_changed = True
        why = self._ask(with_settings(self.before, settings))
        found = self.config() or {}
        if not why and settings_of(found) != settings:
            msg = f"the server was told to load {settings}, and has {settings_of(found)}"
            raise MeasurementError(msg, hint="check that nothing else loads the model meanwhile")
        return why

    def restore(self) -> None:
        """Give the server back the configuration that it had.

        Raises:
            MeasurementError: It does not answer, or does not take it.
        """
        if not self.is_changed:
            return
        why = self._ask(self.before)
        if why or self.config() != self.before:
            msg = f"the server was not given back the configuration that it had: {why or 'it has another one now'}"
            raise MeasurementError(msg, hint=f"load it by hand: POST {self._load}, or start the server again")
        self.is_changed = False

    def reload(self) -> Settings:
        """Let the server read its own files, and return the settings that it has then.

        Raises:
            MeasurementError: The server does not answer.
        """
        self._ask(None)
        return settings_of(self.config() or {})

    def counts(self) -> tuple[int, int] | None:
        """Return how many rows the model has answered, and in how many calls; None where the server does not say."""
        status, _, body = self._client.exchange("GET", f"{self._model}/versions/{self._version}/stats", None, {})
        try:
            found = as_json(body)["model_stats"][0] if status == _OK else None
            return None if found is None else (int(found["inference_count"]), int(found["execution_count"]))
        except (KeyError, IndexError, TypeError, ValueError, ParitygateError):
            return None

    def _ask(self, config: Mapping[str, Any] | None) -> str:
        asked = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        status, _, body = self._client.exchange("POST", self._load, json.dumps(asked).encode(), _JSON)
        return "" if status == _OK else f"HTTP {status}: {in_short(said_in(body))}"
