"""Find out which frameworks and runtimes are installed: a missing one is a state, not a crash."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import MissingBackendError


class Backend(Struct, frozen=True, kw_only=True):
    """A framework or runtime that is used where it is installed."""

    name: str  # in messages and tables
    module: str  # must be found
    distributions: tuple[str, ...]  # tried in order for the version
    extra: str  # of paritygate
    used_for: str
    builds: tuple[str, ...] = ()  # other distributions that overwrite the same module


class BackendState(Struct, frozen=True, kw_only=True):
    """The state of a backend on this machine."""

    backend: Backend
    version: str | None  # None where it is missing
    reason: str  # why it is missing, or empty
    side_by_side: tuple[tuple[str, str], ...] = ()  # several installed builds with their versions

    @property
    def install(self) -> str:
        """The command that installs it."""
        return install_command(self.backend.extra)

    @property
    def warning(self) -> str:
        """A warning that several builds are installed, or an empty text."""
        if not self.side_by_side:
            return ""
        names = " and ".join(f"{name} {version}" for name, version in self.side_by_side)
        return f"{names} are installed side by side, and {self.version} runs: keep one of them"

    @property
    def is_available(self) -> bool:
        """Whether the module was found, without importing it."""
        return self.version is not None


def _backend(name: str, module: str, distributions: tuple[str, ...], extra: str, used_for: str) -> Backend:
    return Backend(name=name, module=module, distributions=distributions, extra=extra, used_for=used_for)


_VERSION = re.compile(r"""^__version__ = ["']([^"']+)["']""", re.MULTILINE)
_VERSION_HEADER = re.compile(r"^Version: *(\S+)$", re.MULTILINE)
_BUILDS_OF_ONNXRUNTIME = (
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-rocm",
    "onnxruntime-training",
    "ort-nightly",
    "ort-nightly-gpu",
)

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="onnxruntime",
            module="onnxruntime",
            distributions=("onnxruntime", "onnxruntime-gpu"),
            extra="cpu",
            used_for="run ONNX models, check exports",
            builds=_BUILDS_OF_ONNXRUNTIME,
        ),
        _backend("torch", "torch", ("torch",), "torch", "run and export PyTorch models"),
        _backend("onnxscript", "onnxscript", ("onnxscript",), "torch", "export PyTorch models to ONNX"),
        _backend(
            "tensorflow",
            "tensorflow",
            ("tensorflow", "tensorflow-cpu"),
            "tensorflow",
            "run and export TensorFlow and Keras models",
        ),
        _backend("tf2onnx", "tf2onnx", ("tf2onnx",), "tensorflow", "export TensorFlow models to ONNX"),
        _backend("openvino", "openvino", ("openvino",), "openvino", "make and run OpenVINO models"),
        _backend("nncf", "nncf", ("nncf",), "nncf", "quantize to INT8, for OpenVINO and ONNX Runtime"),
        _backend("polygraphy", "polygraphy", ("polygraphy",), "tensorrt-rtx", "build and run engines"),
        _backend("tensorrt", "tensorrt", ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"), "gpu", "make and run engines"),
        _backend(
            "tensorrt-rtx",
            "tensorrt_rtx_bindings",
            ("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings"),
            "tensorrt-rtx",
            "make engines ahead of time, without a GPU",
        ),
        _backend("pyarrow", "pyarrow", ("pyarrow",), "parquet", "read Parquet files and data sets as samples"),
        _backend("pillow", "PIL", ("pillow",), "images", "read pictures as samples"),
        _backend("grpcio", "grpc", ("grpcio",), "endpoint", "call models on servers over gRPC"),
        _backend("litert", "ai_edge_litert", ("ai-edge-litert",), "litert", "run TFLite models"),
        _backend("ray", "ray", ("ray",), "ray", "compare and run on several machines"),
    )
}


@functools.cache
def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    # `version` parses all headers and the description, which takes as long as finding ten distributions.
    match = _VERSION_HEADER.search((installed.read_text("METADATA") or "").partition("\n\n")[0])
    return installed.version if match is None else match[1]


def install_command(extra: str) -> str:
    """Return the command that installs an extra of paritygate from its own origin.

    The bare name is not enough, because an index may lack it or have another version than a checkout.
    """
    file = Path(__file__).resolve()
    checkout = file.parents[2]
    if (checkout / "pyproject.toml").is_file() and checkout / "src/paritygate" == file.parent:
        return f"pip install --editable {shlex.quote(f'{checkout}[{extra}]')}"
    return f"pip install {shlex.quote(_requirement(extra, _where_installed_from()))}"


def _where_installed_from() -> Mapping[str, Any]:
    """Return pip's record of the origin, empty for an index. Source: PEP 610, direct_url.json."""
    try:
        text = importlib.metadata.distribution("paritygate").read_text("direct_url.json")
        return json.loads(text) if text else {}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return {}


def _requirement(extra: str, origin: Mapping[str, Any]) -> str:
    if "dir_info" in origin:
        # They load TLS, which only this hint would use.
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        folder = url2pathname(urlsplit(origin["url"]).path)
        return f"{folder}[{extra}]"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return f"paritygate[{extra}] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
    if "url" in origin:
        return f"paritygate[{extra}] @ {origin['url']}"
    return f"paritygate[{extra}]"


def backend_state(name: str) -> BackendState:
    """Return whether the backend is installed, without importing it."""
    backend = BACKENDS[name]
    if importlib.util.find_spec(backend.module) is None:
        reason = f"the module {backend.module!r} is not installed"
        if backend.extra == "gpu" and version_of("onnxruntime"):
            reason += ", and the extra gpu needs a separate environment, without cpu"
        return BackendState(backend=backend, version=None, reason=reason)
    names = (*backend.distributions, *backend.builds)
    installed = tuple((name, version) for name in names if (version := version_of(name)))
    version = next((version for _, version in installed), "unknown")
    if not backend.builds:
        return BackendState(backend=backend, version=version, reason="")
    # The build that was installed last has written the module.
    return BackendState(
        backend=backend,
        version=_version_in_module(backend.module) or version,
        reason="",
        side_by_side=installed if len(installed) > 1 else (),
    )


def _version_in_module(name: str) -> str | None:
    """Return `__version__` from the module's file without importing it; None where it has none."""
    spec = importlib.util.find_spec(name)
    try:
        text = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    except (OSError, UnicodeDecodeError):
        return None
    match = _VERSION.search(text)
    return None if match is None else match[1]


def require_backend(name: str) -> None:
    """Raise MissingBackendError, whose hint installs it, if the backend is missing."""
    state = backend_state(name)
    if not state.is_available:
        msg = f"{name} is needed to {state.backend.used_for}, but is not available: {state.reason}"
        raise MissingBackendError(msg, hint=state.install)
