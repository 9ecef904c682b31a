"""Servers that answer in every wrong way, and in unusual ones that are right: by name what each does."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.loopback import QuietHandler, serving

__all__ = ["MAPPING", "MODES", "RIGHT", "Mode", "original", "serving_mode"]

_WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
MAPPING = {
    "request": {"inputs": {"x": "x"}},
    "response": {
        "outputs": {"logits": "logits", "count": "count", "label": "label", "flag": "flag"},
        "dtypes": {"label": "int64", "flag": "bool"},
    },
}
_PATHS = {"v2": "/v2/models/tiny", "tf": "/v1/models/tiny", "json": "/predict"}
_DATATYPES = {"logits": "FP32", "count": "FP32", "label": "INT64", "flag": "BOOL"}
_DT = {"logits": "DT_FLOAT", "count": "DT_FLOAT", "label": "DT_INT64", "flag": "DT_BOOL"}
_SHAPES = {"logits": [-1, 2], "count": [-1], "label": [-1], "flag": [-1]}


def original(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model behind the server answers; `count` are whole numbers as floats."""
    logits = np.tanh(inputs["x"] @ _WEIGHTS)
    count = np.round(inputs["x"].sum(axis=1) * 3).astype(np.float32)
    return {"logits": logits, "count": count, "label": logits.argmax(axis=1), "flag": logits[:, 0] > 0}


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What a server does.

    Attributes:
        protocol: How it is asked: `v2`, `tf` or `json`.
        pages: Changes what it says of itself and of the model, by path.
        answer: Changes what it answers: of TensorFlow Serving and a mapping by output, else as the protocol has it.
        raw: Changes the bytes that follow the JSON; None of a server that answers JSON alone.
        headers: Further headers of an answer.
        wire: Sends an answer itself, given the body that is right; it may do so for pages as well.
        is_for_pages: Whether it does.
    """

    protocol: str = "v2"
    pages: Callable[[dict[str, Any]], None] = lambda _: None
    answer: Callable[[Any], Any] = lambda found: found
    raw: Callable[[bytes], bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wire: Callable[[_Handler, bytes], None] | None = None
    is_for_pages: bool = False


class _Handler(QuietHandler):
    mode: Mode
    # Set when the test is over.
    over: threading.Event

    def handle(self) -> None:
        # Who was asked ends the connection where it has had enough.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def get(self) -> None:
        pages = _pages(self.mode)
        self.mode.pages(pages)
        found = pages.get(self.path)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        if self.mode.wire is not None and self.mode.is_for_pages:
            self.mode.wire(self, body)
            return
        self.send(body, 200 if self.path in pages else 404)

    def post(self) -> None:
        sent = self.body()
        length = int(self.headers.get("Inference-Header-Content-Length") or len(sent))
        asked = json.loads(sent[:length])
        found = original({"x": _asked(self.mode, asked, sent[length:])})
        body, head = self._answered(found)
        if self.mode.wire is not None and not self.mode.is_for_pages:
            self.mode.wire(self, body)
            return
        self.send(body, **{**head, **self.mode.headers})

    def _answered(self, found: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        mode = self.mode
        if mode.protocol != "v2":
            listed = {name: array.tolist() for name, array in found.items()}
            said = {"outputs": listed} if mode.protocol == "tf" else listed
            changed = mode.answer(said)
            return (changed if isinstance(changed, bytes) else json.dumps(changed).encode()), {}
        outputs, raw = [], b""
        for name, array in found.items():
            output = {"name": name, "datatype": _DATATYPES[name], "shape": list(array.shape)}
            if mode.raw is None:
                output["data"] = array.ravel().tolist()
            else:
                output["parameters"] = {"binary_data_size": array.nbytes}
                raw += array.tobytes()
            outputs.append(output)
        changed = mode.answer({"model_name": "tiny", "model_version": "1", "outputs": outputs})
        head = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        if mode.raw is None:
            return head, {}
        return head + mode.raw(raw), {"Inference_Header_Content_Length": str(len(head))}

    def drip(self, data: bytes) -> None:
        """Send a byte every while, much longer than anybody waits."""
        for at in range(len(data)):
            if self.over.wait(0.2):
                break
            self.wfile.write(data[at : at + 1])
        self.close_connection = True

    def flood(self, head: bytes, part: bytes, most: int) -> None:
        """Send parts until nobody takes them any more; `sent` of the server is how much that was."""
        self.close_connection = True
        self.wfile.write(head)
        for _ in range(most // len(part)):
            if self.over.is_set():
                return
            self.wfile.write(part)

    def raw_answer(self, data: bytes) -> None:
        """Send bytes as they are, and end the connection."""
        self.wfile.write(data)
        self.close_connection = True


def _asked(mode: Mode, asked: Any, raw: bytes) -> Any:  # noqa: ANN401 - JSON data, and an array
    if mode.protocol == "v2":
        (x,) = asked["inputs"]
        flat = x["data"] if "data" in x else np.frombuffer(raw, dtype=np.float32)
        return np.asarray(flat, dtype=np.float32).reshape(x["shape"])
    return np.asarray(asked["inputs"]["x"] if mode.protocol == "tf" else asked["x"], dtype=np.float32)


def _pages(mode: Mode) -> dict[str, Any]:
    if mode.protocol == "tf":
        x = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "3"}]}}
        outputs = {
            name: {"dtype": dtype, "tensor_shape": {"dim": [{"size": str(dim)} for dim in _SHAPES[name]]}}
            for name, dtype in _DT.items()
        }
        known = {"serving_default": {"inputs": {"x": x}, "outputs": outputs}}
        return {"/v1/models/tiny/metadata": {"metadata": {"signature_def": {"signature_def": known}}}}
    outputs = [{"name": name, "datatype": kind, "shape": _SHAPES[name]} for name, kind in _DATATYPES.items()]
    model = {"name": "tiny", "versions": ["1"], "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}
    extensions = ["binary_tensor_data"] if mode.raw is not None else []
    return {
        "/v2": {"name": "tiny-server", "version": "1", "extensions": extensions},
        "/v2/models/tiny": {**model, "outputs": outputs},
    }


@contextlib.contextmanager
def serving_mode(mode: Mode) -> Iterator[str]:
    """Yield the address of the model on a server of a mode."""
    over = threading.Event()
    handler = type("Handler", (_Handler,), {"mode": mode, "over": over})
    with serving(handler) as url:
        yield url + _PATHS[mode.protocol]
        over.set()


# ---- values


def _each(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what changes every value of an output, whatever the protocol."""

    def changed(found: Any) -> Any:  # noqa: ANN401 - JSON data
        if isinstance(found.get("outputs"), list):
            output = next(each for each in found["outputs"] if each["name"] == name)
            output["data"] = [change(value) for value in output["data"]]
            return found
        outputs = found.get("outputs", found)
        outputs[name] = _deep(outputs[name], change)
        return found

    return changed


def _deep(data: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON data
    return [_deep(item, change) for item in data] if isinstance(data, list) else change(data)


def _of(output: str, /, **fields: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - JSON data
    """Return what changes fields of an output of the protocol; None removes one."""

    def changed(found: Any) -> Any:  # noqa: ANN401 - JSON data
        said = next(each for each in found["outputs"] if each["name"] == output)
        said.update({key: value(said) if callable(value) else value for key, value in fields.items()})
        for key in [key for key, value in said.items() if value is None]:
            del said[key]
        return found

    return changed


def _twice(found: Any) -> Any:  # noqa: ANN401 - JSON data
    wrong = {**found["outputs"][0], "data": [7.0] * len(found["outputs"][0]["data"])}
    return {**found, "outputs": [wrong, *found["outputs"]]}


def _key_twice(found: Any) -> bytes:  # noqa: ANN401 - JSON data
    text = json.dumps(found)
    return ('{"outputs": [], "logits": [], ' + text[1:]).encode()


def _deep_lists(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "floats as text": ("logits", str),
    "floats as text with blanks": ("logits", lambda value: f" {value} "),
    "floats as null": ("count", lambda _: None),
    "floats as lists": ("count", lambda value: [value, value]),
    "floats beyond float32": ("count", lambda _: 1e39),
    "integers as fractions": ("label", lambda value: value + 0.9),
    "integers as text": ("label", str),
    "integers as text with blanks": ("label", lambda value: f" {value} "),
    "integers as true and false": ("label", bool),
    "integers as null": ("label", lambda _: None),
    "integers beyond int64": ("label", lambda value: value + 2**64),
    "integers as large floats": ("label", lambda _: 2.0**60),
    "integers as not a number": ("label", lambda _: float("nan")),
    "bools as text": ("flag", str),
    "bools as small fractions": ("flag", lambda value: 0.001 if value else 0),
    "bools as floats": ("flag", float),
    "bools as larger integers": ("flag", lambda value: 2 * value),
    "bools as null": ("flag", lambda value: value or None),
    "bools as objects": ("flag", lambda value: {"value": value}),
}
_VALUES = {
    f"{protocol}: {name}": Mode(protocol=protocol, answer=_each(output, change))
    for protocol in ("v2", "tf", "json")
    for name, (output, change) in _KINDS.items()
}
_ANSWERS = {
    "v2: an output twice": Mode(answer=_twice),
    "v2: a field twice": Mode(answer=_key_twice),
    "tf: a field twice": Mode(protocol="tf", answer=_key_twice),
    "json: a field twice": Mode(protocol="json", answer=_key_twice),
    "v2: a size of -1": Mode(answer=_of("logits", shape=[-1, 2])),
    "v2: a size as text": Mode(answer=_of("logits", shape=["8", "2"])),
    "v2: a size with a fraction": Mode(answer=_of("logits", shape=[8.5, 2])),
    "v2: a huge size": Mode(answer=_of("logits", shape=[10**30, 2])),
    "v2: a shape that is a number": Mode(answer=_of("count", shape=8)),
    "v2: a shape of lists": Mode(answer=_of("count", shape=[[8]])),
    "v2: no shape": Mode(answer=_of("count", shape=None)),
    "v2: a nested list of another shape": Mode(
        answer=_of("logits", data=lambda found: [found["data"][:8], found["data"][8:]])
    ),
    "v2: too few values": Mode(answer=_of("logits", data=lambda found: found["data"][:-1])),
    "v2: lists of two lengths": Mode(answer=_of("count", data=lambda found: [found["data"], [1.0]])),
    "v2: values as an object": Mode(answer=_of("count", data=lambda found: {"0": found["data"]})),
    "v2: no values": Mode(answer=_of("count", data=None)),
    "v2: no datatype": Mode(answer=_of("count", datatype=None)),
    "v2: a datatype that is a list": Mode(answer=_of("count", datatype=["FP32"])),
    "v2: another datatype": Mode(answer=_of("label", datatype="INT32")),
    "v2: no name": Mode(answer=_of("count", name=None)),
    "v2: a name that is a number": Mode(answer=_of("count", name=3)),
    "v2: a version that is a list": Mode(answer=lambda found: {**found, "model_version": ["1"]}),
    "v2: parameters that are a list": Mode(answer=_of("count", parameters=[1])),
    "v2: outputs that are an object": Mode(answer=lambda found: {"outputs": {"logits": found["outputs"][0]}}),
    "v2: outputs that are numbers": Mode(answer=lambda _: {"outputs": [1, 2]}),
    "v2: no outputs": Mode(answer=lambda _: {}),
    "v2: a list": Mode(answer=lambda _: b"[]"),
    "v2: a number": Mode(answer=lambda _: b"3"),
    "v2: null": Mode(answer=lambda _: b"null"),
    "v2: 100,000 levels": Mode(answer=lambda _: _deep_lists(100_000)),
    "v2: values of 900 levels": Mode(answer=lambda _: b'{"outputs": ' + _deep_lists(900) + b"}"),
    "v2: an integer of 100,000 digits": Mode(answer=lambda _: b'{"outputs": [' + b"9" * 100_000 + b"]}"),
    "v2: JSON that is cut off": Mode(answer=lambda found: json.dumps(found).encode()[:-20]),
    "v2: a name of half a character": Mode(answer=_of("count", name="\ud800")),
    "v2: bytes, one bool is 2": Mode(raw=lambda raw: raw[:-1] + b"\2"),
    "v2: bytes, too few": Mode(raw=lambda raw: raw[:-1]),
    "v2: bytes, too many": Mode(raw=lambda raw: raw + b"\0"),
    "v2: bytes, a size as text": Mode(raw=lambda raw: raw, answer=_of("flag", parameters={"binary_data_size": "8"})),
    "v2: bytes, a size of -8": Mode(raw=lambda raw: raw, answer=_of("flag", parameters={"binary_data_size": -8})),
    "v2: bytes, a size beyond all": Mode(
        raw=lambda raw: raw, answer=_of("flag", parameters={"binary_data_size": 10**18})
    ),
    "v2: bytes, a shape of -1": Mode(raw=lambda raw: raw, answer=_of("flag", shape=[-1])),
    **{
        f"v2: a length of the JSON of {said!r}": Mode(headers={"Inference_Header_Content_Length": said})
        for said in ("-5", "9" * 30, "ten", "1_0", "")
    },
    "tf: no outputs": Mode(protocol="tf", answer=lambda _: {}),
    "tf: outputs that are a list": Mode(protocol="tf", answer=lambda _: {"outputs": [1]}),
    "tf: an output is not there": Mode(protocol="tf", answer=lambda found: {"outputs": {"logits": found["outputs"]}}),
    "tf: a list": Mode(protocol="tf", answer=lambda _: b"[]"),
    "tf: 100,000 levels": Mode(protocol="tf", answer=lambda _: _deep_lists(100_000)),
    "json: a list": Mode(protocol="json", answer=lambda _: b"[]"),
    "json: values of 900 levels": Mode(protocol="json", answer=lambda _: b'{"logits": ' + _deep_lists(900) + b"}"),
}


# ---- what it says of itself


def _page(path: str, content: Any) -> Mode:  # noqa: ANN401 - JSON data
    protocol = "tf" if path.startswith("/v1") else "v2"
    return Mode(protocol=protocol, pages=lambda pages: pages.__setitem__(path, content))


def _field(path: str, **fields: Any) -> Mode:  # noqa: ANN401 - JSON data
    return Mode(pages=lambda pages: pages[path].update(fields))


def _output(**fields: Any) -> Mode:  # noqa: ANN401 - JSON data
    return Mode(pages=lambda pages: pages["/v2/models/tiny"]["outputs"][0].update(fields))


def _outputs(count: int) -> list[dict[str, Any]]:
    return [{"name": f"output-{at}", "datatype": "FP32", "shape": [-1]} for at in range(count)]


def _config(said: Any) -> Mode:  # noqa: ANN401 - JSON data
    def changed(pages: dict[str, Any]) -> None:
        pages["/v2"]["extensions"] = ["model_configuration"]
        pages["/v2/models/tiny/config"] = said

    return Mode(pages=changed)


def _tf(**fields: Any) -> Mode:  # noqa: ANN401 - JSON data
    def changed(pages: dict[str, Any]) -> None:
        known = pages["/v1/models/tiny/metadata"]["metadata"]["signature_def"]["signature_def"]
        known["serving_default"].update(fields)

    return Mode(protocol="tf", pages=changed)


_MODEL, _TF = "/v2/models/tiny", "/v1/models/tiny/metadata"
_X = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}
_DESCRIPTIONS = {
    "the server is a list": _page("/v2", [1]),
    "the server is a number": _page("/v2", 3),
    "the server is a text": _page("/v2", "triton"),
    "the server is 100,000 levels": _page("/v2", _deep_lists(100_000)),
    "the server is not JSON": _page("/v2", b"<html>"),
    "the server's name is a list": _field("/v2", name=["triton"]),
    "the server's version is an object": _field("/v2", version={"major": 2}),
    "extensions are a number": _field("/v2", extensions=3),
    "extensions are an object": _field("/v2", extensions={"binary_tensor_data": True}),
    "extensions are lists": _field("/v2", extensions=[["binary_tensor_data"]]),
    "extensions are 100,000": _field("/v2", extensions=["x"] * 100_000),
    "the model is a list": _page(_MODEL, [1]),
    "the model is a number": _page(_MODEL, 3),
    "the model is 100,000 levels": _page(_MODEL, _deep_lists(100_000)),
    "the model is larger than 16 MiB": _page(_MODEL, b'{"name": "' + b" " * (17 << 20) + b'"}'),
    "inputs are an object": _field(_MODEL, inputs={"x": "FP32"}),
    "inputs are a number": _field(_MODEL, inputs=3),
    "inputs are numbers": _field(_MODEL, inputs=[1, 2]),
    "outputs are a text": _field(_MODEL, outputs="logits"),
    "outputs are 100,000": _field(_MODEL, outputs=_outputs(100_000)),
    "two outputs have one name": _field(_MODEL, outputs=[*_outputs(1), *_outputs(1)]),
    "a name is a number": _output(name=3),
    "a name is empty": _output(name=""),
    "a name is 100,000 characters": _output(name="x" * 100_000),
    "a name is half a character": _output(name="\ud800"),
    "a datatype is a list": _output(datatype=["FP32"]),
    "a datatype is none": _output(datatype="FP99"),
    "a shape is a number": _output(shape=3),
    "a shape is a text": _output(shape="ab"),
    "a shape has lists": _output(shape=[[1], 2]),
    "a shape has fractions": _output(shape=[-1, 2.5]),
    "a shape has true": _output(shape=[-1, True]),
    "a shape has null": _output(shape=[-1, None]),
    "a shape has 10**40": _output(shape=[-1, 10**40]),
    "a shape has 1,000 sizes": _output(shape=[1] * 1000),
    "a shape has a long text": _output(shape=["9" * 10_000]),
    "the largest batch is a text": _config({"max_batch_size": "8"}),
    "the largest batch is below 0": _config({"max_batch_size": -1}),
    "the largest batch is true": _config({"max_batch_size": True}),
    "the largest batch is a list": _config({"max_batch_size": [8]}),
    "the configuration is a list": _config([8]),
    "tf: the model is a list": _page(_TF, [1]),
    "tf: the model is null": _page(_TF, b"null"),
    "tf: no signatures": _page(_TF, {"metadata": {}}),
    "tf: signatures are a list": _page(_TF, {"metadata": {"signature_def": {"signature_def": [1]}}}),
    "tf: a signature is a number": _page(
        _TF, {"metadata": {"signature_def": {"signature_def": {"serving_default": 3}}}}
    ),
    "tf: inputs are a list": _tf(inputs=[1]),
    "tf: outputs are a number": _tf(outputs=3),
    "tf: outputs are 100,000": _tf(outputs={f"output-{at}": _X for at in range(100_000)}),
    "tf: no outputs": _tf(outputs={}),
    "tf: an output is a text": _tf(outputs={"logits": "DT_FLOAT"}),
    "tf: a dtype is a list": _tf(outputs={"logits": {**_X, "dtype": ["DT_FLOAT"]}}),
    "tf: a dtype is none": _tf(outputs={"logits": {**_X, "dtype": "DT_RESOURCE"}}),
    "tf: a size is a fraction": _tf(outputs={"logits": {**_X, "tensor_shape": {"dim": [{"size": 2.5}]}}}),
    "tf: a size is a word": _tf(outputs={"logits": {**_X, "tensor_shape": {"dim": [{"size": "two"}]}}}),
    "tf: a shape is a list": _tf(outputs={"logits": {**_X, "tensor_shape": [2]}}),
}


# ---- HTTP


def _head(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    said = lines or (f"Content-Length: {len(body)}",)
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *said, "")).encode()


def _sent(*lines: str, status: str = "200 OK", body: Callable[[bytes], bytes] = lambda body: body) -> Mode:
    """Return a mode that sends the right body with other headers, or another body, and ends the connection."""

    def wire(handler: _Handler, right: bytes) -> None:
        sent = body(right)
        handler.raw_answer(_head(sent, *(line.format(right=len(right)) for line in lines), status=status) + sent)

    return Mode(wire=wire)


def _chunks(body: bytes, size: int = 50) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def _reset(handler: _Handler, body: bytes) -> None:
    del body
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def _hang(handler: _Handler, body: bytes) -> None:
    del body
    handler.over.wait(3600)
    handler.close_connection = True


_CHUNKED, _GZIP, _DEFLATE = "Transfer-Encoding: chunked", "Content-Encoding: gzip", "Content-Encoding: deflate"
_LONG = "Content-Length: 900000000"
_BOMB = gzip.compress(bytes(64 << 20))
_MOST = 256 << 20
_WIRE = {
    "a byte every while": Mode(wire=lambda handler, body: handler.drip(_head(body) + body)),
    "a byte of the headers every while": Mode(
        wire=lambda handler, body: handler.drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 600 + body)
    ),
    "a byte of a description every while": Mode(
        wire=lambda handler, body: handler.drip(_head(body) + body), is_for_pages=True
    ),
    "no answer": Mode(wire=_hang),
    "no description": Mode(wire=_hang, is_for_pages=True),
    "headers without end": Mode(wire=lambda handler, _: handler.flood(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", _MOST)),
    "a header without end": Mode(wire=lambda handler, _: handler.flood(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 999, _MOST)),
    "200 headers": _sent(*(f"X-{at}: a" for at in range(200))),
    "a body without end": Mode(wire=lambda handler, _: handler.flood(b"HTTP/1.1 200 OK\r\n\r\n", b"0" * 65536, _MOST)),
    "a body of 256 MB": Mode(wire=lambda handler, _: handler.flood(_head(b"", _LONG), b"0" * 65536, _MOST)),
    "a description without end": Mode(
        wire=lambda handler, _: handler.flood(b"HTTP/1.1 200 OK\r\n\r\n", b"0" * 65536, _MOST), is_for_pages=True
    ),
    "chunks without end": Mode(
        wire=lambda handler, _: handler.flood(_head(b"", _CHUNKED), b"1\r\n0\r\n" * 5000, _MOST)
    ),
    "trailers without end": Mode(
        wire=lambda handler, body: handler.flood(_head(b"", _CHUNKED) + _chunks(body)[:-2], b"X-A: b\r\n" * 5000, _MOST)
    ),
    "a chunk of length -1": _sent(_CHUNKED, body=lambda body: b"-1\r\n" + body),
    "a chunk of length -5": _sent(_CHUNKED, body=lambda body: b"-5\r\n" + body),
    "a chunk whose length is a word": _sent(_CHUNKED, body=lambda body: b"ten\r\n" + body),
    "a chunk that is cut off": _sent(_CHUNKED, body=lambda body: b"%x\r\n" % (2 * len(body)) + body),
    "chunks without the last": _sent(_CHUNKED, body=lambda body: _chunks(body)[:-5]),
    "a body that is cut off": _sent("Content-Length: {right}", body=lambda body: body[:-9]),
    "a body that is longer than its length": _sent("Content-Length: 20"),
    "a length that is a word": _sent("Content-Length: ten", body=lambda body: body[:-9]),
    "a length below 0": _sent("Content-Length: -5", body=lambda body: body[:-9]),
    "100 says go on, without end": Mode(
        wire=lambda handler, _: handler.flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 999, _MOST)
    ),
    "gzip of 64 MB of zeros": _sent(_GZIP, body=lambda _: _BOMB),
    "gzip of a text of 64 MB": _sent(_GZIP, body=lambda _: gzip.compress(b'{"outputs": "' + b"x" * (64 << 20))),
    "deflate of 64 MB of zeros": _sent(_DEFLATE, body=lambda _: zlib.compress(bytes(64 << 20))),
    "gzip in gzip": _sent("Content-Encoding: gzip, gzip", body=lambda _: gzip.compress(_BOMB)),
    "gzip that is cut off": _sent(_GZIP, body=lambda body: gzip.compress(body)[:-9]),
    "gzip that is none": _sent(_GZIP),
    "packed as nobody knows": _sent("Content-Encoding: br"),
    "a status that is a word": _sent(status="fine"),
    "a status of 99": _sent(status="99 Low"),
    "no HTTP": Mode(wire=lambda handler, body: handler.raw_answer(body)),
    "bytes at random": Mode(wire=lambda handler, _: handler.raw_answer(bytes(range(256)) * 9)),
    "another protocol": Mode(wire=lambda handler, _: handler.raw_answer(b"SSH-2.0-OpenSSH_9.2\r\n")),
    "an empty answer": _sent(body=lambda _: b""),
    "an end without an answer": Mode(wire=lambda handler, _: handler.raw_answer(b"")),
    "a reset": Mode(wire=_reset),
    "a redirect": _sent("Location: http://127.0.0.1:1/secret", "Content-Length: 0", status="302 Found"),
    "no content": _sent("Content-Length: 0", status="204 No Content", body=lambda _: b""),
    "another protocol from here on": _sent("Upgrade: x", status="101 Switching Protocols", body=lambda _: b""),
    "an error of 100,000 levels": _sent(status="500 Error", body=lambda _: _deep_lists(100_000)),
    "an error that lists what is not a complaint": _sent(
        status="422 No", body=lambda _: b'{"detail": [{"msg": [[1]]}]}'
    ),
    "an error of one long line": _sent(status="400 No", body=lambda _: b"x" * 900_000),
    "too many requests": _sent(status="429 Slow", body=lambda _: b"later"),
    "blanks": _sent(body=lambda _: b" " * 900_000),
}
MODES = {**_VALUES, **_ANSWERS, **_DESCRIPTIONS, **_WIRE}

# What is unusual, and right.
RIGHT = {
    **{
        f"{protocol}: {name}": Mode(protocol=protocol, answer=_each(output, change))
        for protocol in ("v2", "tf", "json")
        for name, (output, change) in {
            "integers as floats, as PHP may write them": ("label", float),
            "bools as 0 and 1": ("flag", int),
            "floats as integers, as JavaScript writes them": ("count", int),
        }.items()
    },
    "v2: nested lists": Mode(answer=_of("logits", data=lambda found: np.reshape(found["data"], (-1, 2)).tolist())),
    "v2: sizes as floats": Mode(answer=_of("logits", shape=lambda found: list(map(float, found["shape"])))),
    "v2: bytes": Mode(raw=lambda raw: raw),
    "v2: a version that is a number": Mode(answer=lambda found: {**found, "model_version": 1}),
    "v2: sizes as text in the description": _output(shape=["-1", "2"]),
    "gzip": _sent(_GZIP, body=gzip.compress),
    "gzip in two files": _sent(_GZIP, body=lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "deflate": _sent(_DEFLATE, body=zlib.compress),
    "chunks": _sent(_CHUNKED, body=_chunks),
    "chunks of gzip": _sent(_CHUNKED, _GZIP, body=lambda body: _chunks(gzip.compress(body))),
    "no length, and the end of the connection": _sent("Connection: close"),
    "100 before the answer": Mode(
        wire=lambda handler, body: handler.raw_answer(b"HTTP/1.1 100 Continue\r\n\r\n" + _head(body) + body)
    ),
    "headers in other letters": _sent("CONTENT-LENGTH: {right}", "x-a: b"),
}
