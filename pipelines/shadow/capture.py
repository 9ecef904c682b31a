"""Reads captured traffic: one request and its answer a line of JSON, or a row of Parquet."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.backends import require_backend
from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.errors import BackendError, InputFileError, UsageError
from paritygate.files import parse_json, read_json
from paritygate.pipelines.compare.served_version import ReleaseNumber
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.endpoint.json_values import array_of, shape_of, shown
from paritygate.validate.runners.endpoint.tensors import name_and_dtype
from paritygate.validate.runners.endpoint.words import in_short
from paritygate.validate.samples.feeding import check_shapes, fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]
    # JSON text, or the columns of a row.
    Line = str | Mapping[str, Any]

# The server says that the client is wrong, and nobody knows whether it is.
_CLIENT_ERRORS = range(400, 500)
OK = range(200, 300)
_ROWS_AT_ONCE = 256
# Its own words may hold values.
_UNREADABLE = "an answer that cannot be read"
# In place of an answer that is no JSON: its text may be confidential.
UNREADABLE = ""
_UNFIT = "the release does not accept the request"
_FORM = 'one line holds {"request": {"inputs": [...]}, "response": {"outputs": [...]}}: see docs/shadow.md'


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its answer."""

    line: int  # from 1
    inputs: Arrays  # axis 0 holds the rows; empty where the server refused the request
    outputs: Arrays | None = None  # None where the server gave no answer
    why: str = ""  # the reason why there are no outputs
    is_refused: bool = False  # as the client's error
    is_unfit: bool = False  # the release does not accept the request
    served: str = ""  # the name of the model in the answer
    version: str = ""  # likewise
    is_of_other: bool = False  # the answer is that of another release; such a request is not judged

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.inputs.values()))) if self.inputs else 0

    @property
    def is_unreadable(self) -> bool:
        """Whether the server answered without an error, in a form that nobody can read."""
        return self.why == _UNREADABLE


class CapturedFile(Struct, frozen=True, kw_only=True):
    """A file of captured traffic, and the inputs and outputs of the released file."""

    path: Path
    name: str  # of the user's file, for messages
    signature: Signature
    release: ReleaseNumber | None = None  # answers of the model's other releases are left out; None for all answers
    most: int | None = None  # requests to read; None for all

    def save(self, path: Path) -> None:
        """Write what a child process needs to read the same requests."""
        path.write_text(json.dumps({**to_data(self), "path": str(self.path.resolve())}), encoding="utf-8")

    @property
    def is_parquet(self) -> bool:
        """Return whether the file is Parquet, by its name."""
        return Path(self.name).suffix == ".parquet"

    @property
    def is_cut_off(self) -> bool:
        """Return whether the last line is cut off, and left out."""
        if self.is_parquet:
            return False
        with self.path.open("rb") as stream:
            last = b"".join(deque(stream, maxlen=1)).decode("utf-8", "replace")
        return bool(last.strip()) and _is_cut_off(last)

    def exchanges(self) -> Iterator[Exchange]:
        """Yield the requests in their order.

        A last line that is cut off is left out: its writer is not done with it.

        Raises:
            InputFileError: The file cannot be read, or a line is not an exchange.
        """
        read: Callable[[Path, str], Iterator[tuple[int, Line]]] = _parquet_rows if self.is_parquet else _lines
        for number, line in islice(read(self.path, self.name), self.most):
            yield self._exchange(number, line)

    def _exchange(self, number: int, line: Line) -> Exchange:
        try:
            said = _mapping(parse_json(line) if isinstance(line, str) else _parsed(line), "the line")
            status, response = said.get("status", 200), said.get("response", said)
            served, version = (_reported(response, key) for key in ("model_name", "model_version"))
            if self.release is not None and self.release.is_other(version, served):
                return Exchange(line=number, inputs={}, why=f"version {version}", version=version, is_of_other=True)
            if type(status) is int and status in _CLIENT_ERRORS:
                return Exchange(line=number, inputs={}, why=f"status {status}", is_refused=True)
            why = _why_unanswered(status, response)
            sent = _mapping(said.get("request", said), "the request")
            inputs = self._inputs(sent, is_answered=not why)
            if inputs is None:
                return Exchange(line=number, inputs={}, why=_UNFIT, is_unfit=True)
            outputs, why = (None, why) if why else self._outputs(response)
        except (ValueError, BackendError, RecursionError) as err:
            why = err.msg if isinstance(err, json.JSONDecodeError) else str(err)
            msg = f"{self.name}, line {number} is not a captured request: {why}"
            raise InputFileError(msg, hint=_FORM) from err
        return Exchange(line=number, inputs=inputs, outputs=outputs, why=why, served=served, version=version)

    def _inputs(self, sent: Mapping[str, Any], *, is_answered: bool) -> Arrays | None:
        """Return the inputs of a request, or None for one that the released file does not accept."""
        try:
            inputs = _with_rows(_arrays(sent, "inputs", self.signature.inputs))
            if is_answered:
                batch = Batch(inputs=inputs, ids=[str(row) for row in range(len(next(iter(inputs.values()))))])
                check_shapes(batch, fit_inputs(batch, self.signature), self.signature)
        except (ValueError, BackendError, UsageError, RecursionError):
            if not isinstance(sent.get("inputs"), list | dict):
                raise
            return None
        return inputs

    def _outputs(self, response: object) -> tuple[Arrays | None, str]:
        """Return the outputs of an answer, or why there are none: that is a fault of the server, not of the file."""
        try:
            return _arrays(response, "outputs", self.signature.outputs), ""
        except (ValueError, BackendError, RecursionError):
            return None, _UNREADABLE


def _lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not _is_cut_off(line):
                    yield number, line
    except (OSError, UnicodeDecodeError) as err:
        msg = f"captured requests {name} cannot be read: {err}"
        raise InputFileError(msg, hint="give a text file in UTF-8 with --captured") from err


def _parquet_rows(path: Path, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    require_backend("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as table:
            batches = table.iter_batches(batch_size=_ROWS_AT_ONCE)
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield number, {key: value for key, value in row.items() if value is not None}
    except (OSError, pa.ArrowException) as err:
        msg = f"captured requests {name} cannot be read: {err}"
        raise InputFileError(msg, hint="give a Parquet file with --captured") from err


def _parsed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its columns of JSON text as data; an answer that is not JSON stays text."""
    return {key: _value(key, value) if isinstance(value, str | bytes) else value for key, value in row.items()}


def _value(key: str, text: str | bytes) -> Any:  # noqa: ANN401 - JSON data
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        if key != "response":
            raise
        return text


def _is_cut_off(line: str) -> bool:
    if line.endswith("\n"):
        return False
    try:
        parse_json(line)
    except (ValueError, RecursionError):
        return True
    return False


def _mapping(said: object, what: str) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        msg = f"{what} holds {shown(said)}, not a mapping"
        raise ValueError(msg)  # noqa: TRY004 - all that is wrong with a line is one error
    return said


def _with_rows(inputs: Arrays) -> Arrays:
    rows = {array.shape[:1] for array in inputs.values()}
    if len(rows) != 1 or rows & {(), (0,)}:
        shapes = {name: list(array.shape) for name, array in inputs.items()}
        msg = f"inputs of the shapes {shown(shapes)}, with different numbers of rows"
        raise ValueError(msg)
    return inputs


def _reported(response: object, key: str) -> str:
    """Return the name or version of the model in an answer; empty where it has none."""
    said = response.get(key) if isinstance(response, dict) else None
    return in_short(str(said)) if isinstance(said, str | int) and not isinstance(said, bool) else ""


def _why_unanswered(status: object, response: object) -> str:
    if type(status) is not int or status not in OK:
        return f"status {shown(status)}"
    if isinstance(response, str):
        return _UNREADABLE
    if not isinstance(response, dict) or "error" in response or "outputs" not in response:
        return "no outputs"
    return ""


def _arrays(said: object, key: str, specs: tuple[TensorSpec, ...]) -> Arrays:
    """Return tensors as the Open Inference Protocol writes them, or as a mapping from names to values."""
    tensors = said.get(key) if isinstance(said, dict) else None
    if isinstance(tensors, dict):
        dtypes = {spec.name: spec.dtype for spec in specs}
        unknown = [name for name in tensors if name not in dtypes]
        if unknown and key == "inputs":
            msg = f"{key} {', '.join(unknown)}, which the released file does not have (it has: {', '.join(dtypes)})"
            raise ValueError(msg)
        return {name: array_of(values, dtypes[name]) for name, values in tensors.items() if name in dtypes}
    if not isinstance(tensors, list):
        msg = f"{key} {shown(tensors)}, neither a list nor a mapping"
        raise ValueError(msg)  # noqa: TRY004 - one error for a line
    return dict(map(_tensor, tensors))


def _tensor(said: Any) -> tuple[str, NDArray[np.generic]]:  # noqa: ANN401 - JSON data
    name, dtype = name_and_dtype(_mapping(said, "a tensor"))
    if "data" not in said:
        msg = f"{name!r} without data, because values sent as bytes are not in the JSON"
        raise ValueError(msg)
    return name, array_of(said["data"], dtype, shape_of(said.get("shape")))


def check_request(said: Mapping[str, Any]) -> None:
    """Raise ValueError for a request that would make a captured file unreadable."""
    if isinstance(said.get("inputs"), dict) and said["inputs"]:
        return
    try:
        _with_rows(_arrays(said, "inputs", ()))
    except (BackendError, RecursionError) as err:
        raise ValueError(str(err)) from err


def requests(path: str) -> Iterator[Batch]:
    """Yield the answered requests as samples, each a batch; `path` is a file that `CapturedFile.save` wrote."""
    captured = from_data(CapturedFile, read_json(Path(path)))
    for exchange in captured.exchanges():
        if exchange.outputs is not None:
            ids = [f"{exchange.line}.{row}" for row in range(1, exchange.rows + 1)]
            yield Batch(inputs=exchange.inputs, ids=ids, case=f"line {exchange.line}")
