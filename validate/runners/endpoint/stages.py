"""Run a list of named stages as one function. A stage is a function, or a model on a server by its address."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.addresses import shown_address
from paritygate.errors import ParitygateError, UsageError
from paritygate.models.endpoint import EndpointLimits, parse_endpoint
from paritygate.models.json_mapping import json_mapping_of
from paritygate.models.loading import LoadedModel
from paritygate.models.source import is_stages
from paritygate.signature import Signature
from paritygate.text import a_or_an
from paritygate.validate.runners.endpoint.answer_size import reference_answered
from paritygate.validate.runners.endpoint.json_fields import JsonFields
from paritygate.validate.runners.endpoint.runner import Server, answer_of, open_server
from paritygate.validate.runners.function import FunctionRunner, failed_on
from paritygate.validate.runners.function import open_model as open_function
from paritygate.validate.runners.runner import describe_arrays


class Stage(Struct, frozen=True, kw_only=True):
    """A named step: `call` takes what the step before returned, and the first one the inputs by name."""

    name: str
    call: Callable[[Any], Any]
    address: str = ""  # of a server

    def run(self, value: object) -> object:
        """Return what it makes of a value; an error of it names the stage, and the server if there is one.

        Raises:
            ParitygateError: It failed.
        """
        named = f"stage {self.name}" + (f" at {shown_address(self.address)}" if self.address else "")
        try:
            return self.call(value)
        except ParitygateError as err:
            err.args = (f"{named}: {err}",)
            raise
        except Exception as err:
            given = a_or_an(type(value).__name__)
            if isinstance(value, Mapping) and all(isinstance(item, np.ndarray) for item in value.values()):
                given = describe_arrays(value)
            raise failed_on(named, given, err, "check what this stage takes and returns") from err


def stages_of(value: object, limits: EndpointLimits | None = None) -> list[Stage] | None:
    """Return the stages of a list of them; None for anything else. The limits apply to each server.

    Raises:
        UsageError: An address or the mapping of one is malformed.
    """
    if not is_stages(value):
        return None
    return [
        Stage(name=name, call=call)
        if callable(call)
        else Stage(name=name, call=_ServedStage(limits or EndpointLimits(), name, call, *mapping), address=call)
        for name, call, *mapping in value
    ]


def open_model(loaded: LoadedModel) -> FunctionRunner:
    """Return the stages as one function, ready to run; it raises as that of a function."""
    stages = stages_of(loaded.model, loaded.ref.endpoint_limits) or []

    def run(inputs: object) -> object:
        return functools.reduce(lambda value, stage: stage.run(value), stages, inputs)

    return open_function(replace(loaded, model=run))


class _ServedStage:
    """A model on a server. It takes those arrays of the value before that it needs, and returns its outputs."""

    def __init__(
        self, limits: EndpointLimits, name: str, address: str, mapping: Mapping[str, Any] | None = None
    ) -> None:
        self._limits = limits
        self._mapping = None if mapping is None else json_mapping_of(mapping)
        try:
            self._endpoint = parse_endpoint(address, is_mapped=mapping is not None)
        except UsageError as err:
            msg = f"stage {name} has no address of a known protocol (got {shown_address(address)})"
            raise UsageError(msg, hint="add a mapping of its JSON: (name, address, mapping)") from err

    @functools.cached_property
    def _server(self) -> Server:
        if self._mapping is not None:
            return JsonFields(self._endpoint, self._limits, self._mapping)
        return open_server(self._endpoint, self._limits)

    @functools.cached_property
    def _signature(self) -> Signature | None:
        return self._server.signature()

    def __call__(self, value: object) -> dict[str, NDArray[np.generic]]:
        # No size follows from the size of the last stage's result.
        with reference_answered({}, ()):
            outputs = () if self._signature is None else self._signature.outputs
            return answer_of(self._server, self._taken(value), outputs)

    def _taken(self, value: object) -> dict[str, NDArray[np.generic]]:
        arrays = value if isinstance(value, Mapping) else {}
        names: Iterable[str] = arrays
        if self._mapping is not None:
            names = self._mapping.inputs
        elif self._signature is not None:
            names = [spec.name for spec in self._signature.inputs]
        missing = [name for name in names if name not in arrays]
        if missing or not arrays:
            given = ", ".join(map(str, arrays)) or a_or_an(type(value).__name__)
            msg = f"no {', '.join(missing) or 'arrays by name'} among its inputs (given: {given})"
            raise UsageError(msg, hint="return a dict with these arrays from the stage before")
        return {name: np.asarray(arrays[name]) for name in names}
