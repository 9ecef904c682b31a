"""Run an ONNX file in ONNX Runtime, on the CPU or an NVIDIA GPU, in the requested provider alone."""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from paritygate.backends import install_command, require_backend
from paritygate.batch import Arrays
from paritygate.errors import BackendError, MissingBackendError
from paritygate.machine import device_name
from paritygate.models.loading import LoadedModel
from paritygate.models.onnx.file import OPTIMISER_HINT, precision_of_onnx, read_onnx, signature_of_onnx
from paritygate.models.onnx.locales import hint_on_locale
from paritygate.models.onnx.zipmap import ZipMap, zip_maps
from paritygate.signature import Signature, rename_signature
from paritygate.text import first_line
from paritygate.validate.runners.onnxruntime_placement import GraphNode, nodes_of, placed_nodes
from paritygate.validate.runners.onnxruntime_providers import (
    CPU,
    TENSORRT,
    ProviderRequest,
    bar_tf32,
    check_options,
    check_placement,
    load_libraries,
    lower_dtypes,
    provider_request,
    tf32_of,
)
from paritygate.validate.runners.onnxruntime_waiting import set_waiting
from paritygate.validate.runners.runner import (
    ALL_THERE_IS,
    NOT_KNOWN,
    ON_THE_GPU,
    Runner,
    RuntimeFacts,
    threads_of_process,
)

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

# The exceptions hold ONNX Runtime's log, so it prints only errors that end the process.
_FATAL = 4
_BFLOAT16 = "bfloat16"
_ON_THE_CPU = (
    "ONNX Runtime's CPU provider computes most operators of lower precision in float32: "
    "this run shows nothing about another device"
)
_LIBRARIES_MISSING = "Please install TensorRT libraries"
_LIBRARIES_HINT = (
    "install the CUDA, cuDNN and TensorRT libraries that this onnxruntime names in the log, or use device cpu"
)
_REFUSED_HINT = "export the model again with another opset or exporter"
_WEIGHTS = "weights.bin"
_ERROR_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def open_model(loaded: LoadedModel) -> OnnxRuntimeRunner:
    """Return the ONNX file loaded in ONNX Runtime; it reads all weights for their precision."""
    require_backend("onnxruntime")
    ref = loaded.ref
    path = ref.path
    proto = read_onnx(path)
    own = signature_of_onnx(proto)
    served = rename_signature(own, ref.rename)
    precision = precision_of_onnx(proto, path.parent)
    dtypes = lower_dtypes(proto)
    tables = zip_maps(proto)
    request = provider_request(ref.provider, loaded.device, own=own, served=ref.signature, dtypes=dtypes)
    nodes = () if request.name == CPU else nodes_of(proto)
    # The parsed file is as large as its weights, and the session holds its own copy.
    del proto
    device = device_name(loaded.device)
    if request.name == TENSORRT:
        request = replace(request, is_tf32_barred=bar_tf32())
    open_session = functools.partial(_open_session, str(path), request, is_optimised=loaded.is_optimised)
    before = threads_of_process()
    session = open_session()
    after = threads_of_process()
    # TensorRT would build its engines again, and ONNX Runtime writes no graph that holds them.
    optimised = tuple if request.name == TENSORRT else functools.partial(_optimised_nodes, open_session)
    facts = replace(_facts(session, request, nodes, optimised, device=device), precision_found=precision)
    if tables:
        names = zip(own.outputs, served.outputs, strict=True)
        facts = replace(facts, classes={new.name: tables[old.name].classes for old, new in names if old.name in tables})
    if request.name == CPU and dtypes - {"int8"}:
        facts = replace(facts, notes=(*facts.notes, _ON_THE_CPU))
    return OnnxRuntimeRunner(
        session=session,
        own=own,
        served=served,
        facts=facts,
        tables=tables,
        one_thread=_why_not_one_thread(request, before, after) or functools.partial(open_session, threads=1),
        plain=functools.partial(_open_session, str(path), request, is_optimised=False)
        if loaded.is_optimised and request.name == CPU
        else None,
    )


def _why_not_one_thread(request: ProviderRequest, before: frozenset[str] | None, after: frozenset[str] | None) -> str:
    """Return why a session uses one thread already, by the process's threads before and after it opened; else empty."""
    if request.name != CPU:
        return ON_THE_GPU
    if before is None or after is None:
        return NOT_KNOWN
    # ONNX Runtime does not report its threads. They start with the session, and the caller's is one of them.
    return "" if after - before else ALL_THERE_IS


def _open_session(
    path: str, request: ProviderRequest, *, is_optimised: bool, threads: int | None = None, written: Path | None = None
) -> onnxruntime.InferenceSession:
    import onnxruntime

    if request.name not in onnxruntime.get_available_providers():
        has = ", ".join(onnxruntime.get_available_providers())
        msg = f"this build of onnxruntime has no {request.name} (it has: {has})"
        raise MissingBackendError(msg, hint=f"pip uninstall onnxruntime && {install_command('gpu')}")
    load_libraries(onnxruntime, request.name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.use_deterministic_compute = True
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    if written is not None:
        options.optimized_model_filepath = str(written)
        # One file holds 2 GB at the most.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
    set_waiting(options)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimised else levels.ORT_DISABLE_ALL
    providers = [(name, dict(settings)) for name, settings in request.providers]
    try:
        # Without its own fallback, which prints the failure and continues on the CPU.
        session = onnxruntime.InferenceSession(path, sess_options=options, providers=providers, enable_fallback=0)
    except Exception as err:
        if _LIBRARIES_MISSING in str(err):
            msg = f"onnxruntime {onnxruntime.__version__} could not start {request.name}: its libraries are not found"
            raise BackendError(msg, hint=_LIBRARIES_HINT) from err
        reason = reason_of_onnxruntime(err)
        if is_optimised and request.name == CPU and _loads(path, request):
            msg = f"onnxruntime {onnxruntime.__version__} cannot optimise {path}, which is valid: {reason}"
            raise BackendError(msg, hint=OPTIMISER_HINT) from err
        msg = f"onnxruntime {onnxruntime.__version__} refused {path}: {reason}"
        raise BackendError(msg, hint=hint_on_locale(str(err)) or _REFUSED_HINT) from err
    # A session without its provider's libraries uses the CPU's instead; one that fails later falls back.
    session.disable_fallback()
    if session.get_providers()[0] != request.name:
        msg = f"onnxruntime runs {path} with {', '.join(session.get_providers())}, but {request.name} was requested"
        raise BackendError(msg, hint=_LIBRARIES_HINT)
    return session


def _loads(path: str, request: ProviderRequest) -> bool:
    """Return whether the file loads without graph optimisations, so that the runtime's optimiser is at fault."""
    try:
        _open_session(path, request, is_optimised=False)
    except BackendError:
        return False
    return True


def _optimised_nodes(opened: Callable[..., onnxruntime.InferenceSession]) -> tuple[GraphNode, ...]:
    """Return the nodes of the graph as ONNX Runtime optimised it, by way of a temporary folder with all weights.

    It returns none where that cannot be written; then a node that is not in the file counts as computing.
    """
    import onnx

    with tempfile.TemporaryDirectory(prefix="paritygate-optimised-") as folder:
        written = Path(folder) / "model.onnx"
        try:
            opened(written=written)
            return nodes_of(onnx.load(written, load_external_data=False))
        except Exception:  # noqa: BLE001 - whatever it is, as said above
            return ()


def reason_of_onnxruntime(err: BaseException) -> str:
    """Return an error of ONNX Runtime in one line."""
    return _ERROR_PREFIX.sub("", first_line(err))


def _facts(
    session: onnxruntime.InferenceSession,
    request: ProviderRequest,
    nodes: Sequence[GraphNode],
    optimised: Callable[[], Iterable[GraphNode]],
    *,
    device: str,
) -> RuntimeFacts:
    """Return a session's own facts, after checking that it is as requested."""
    import onnxruntime

    options = session.get_provider_options()
    check_options(request, options)
    notes, warnings = check_placement(
        request, placed_nodes(session), nodes, version=onnxruntime.__version__, optimised=optimised
    )
    level = session.get_session_options().graph_optimization_level
    return RuntimeFacts(
        runtime="onnxruntime",
        version=onnxruntime.__version__,
        device=device,
        provider=session.get_providers()[0],
        tf32=tf32_of(request, options),
        optimisation=level.name.removeprefix("ORT_").removeprefix("ENABLE_").lower(),
        notes=(*request.notes, *notes),
        provider_warnings=(*request.warnings, *warnings),
        # ONNX Runtime documents it for the CPU's provider; for the others it is unknown.
        may_be_called_at_once=request.name == CPU,
    )


class OnnxRuntimeRunner(Runner):
    """One ONNX model in one session.

    `tables` are outputs that are mappings and become tables, by the file's names. `one_thread` opens the file on one
    thread, or is the reason why not. `plain` opens the graph as it is in the file; None where there is none.
    """

    _what = "onnxruntime failed"

    def __init__(  # noqa: PLR0913 - one argument for each thing that was opened or read
        self,
        *,
        session: onnxruntime.InferenceSession,
        own: Signature,
        served: Signature,
        facts: RuntimeFacts,
        tables: Mapping[str, ZipMap],
        one_thread: Callable[[], onnxruntime.InferenceSession] | str,
        plain: Callable[[], onnxruntime.InferenceSession] | None = None,
    ) -> None:
        super().__init__(served, facts, own)
        self._session = session
        self._tables = tables
        self._one_thread = one_thread
        self._plain = plain
        self._own_outputs = [spec.name for spec in own.outputs]
        # NumPy has no bfloat16, so ONNX Runtime neither takes nor returns such arrays by itself.
        self._has_bfloat16 = any(spec.dtype == _BFLOAT16 for spec in (*own.inputs, *own.outputs))

    def _call(self, feed: Arrays) -> Sequence[NDArray[np.generic]]:
        arrays = {name: np.asarray(array, order="C") for name, array in feed.items()}
        if self._has_bfloat16:
            return self._run_bfloat16(arrays)
        answers: Sequence[Any] = self._session.run(self._own_outputs, arrays)
        if not self._tables:
            return answers
        named = zip(self._own_outputs, answers, strict=True)
        return [self._tables[name].table_of(value) if name in self._tables else value for name, value in named]

    def _reason(self, err: Exception) -> str:
        return reason_of_onnxruntime(err)

    def on_one_thread(self) -> contextlib.AbstractContextManager[OnnxRuntimeRunner] | str:
        """Return an opener of a second session on one thread, or why there is none."""
        return self._one_thread if isinstance(self._one_thread, str) else self._in_second_session(self._one_thread)

    def unoptimised(self) -> contextlib.AbstractContextManager[OnnxRuntimeRunner] | None:
        """Return an opener of a second session of the graph as in the file; None where this one is such."""
        return None if self._plain is None else self._in_second_session(self._plain)

    @contextlib.contextmanager
    def _in_second_session(self, opened: Callable[[], onnxruntime.InferenceSession]) -> Iterator[OnnxRuntimeRunner]:
        yield OnnxRuntimeRunner(
            session=opened(),
            own=self._own,
            served=self._served,
            facts=self._facts,
            tables=self._tables,
            one_thread=ALL_THERE_IS,
        )

    def _run_bfloat16(self, feed: Arrays) -> list[NDArray[np.generic]]:
        binding = self._session.io_binding()
        # Bound values have to live as long as the call.
        values = {name: _ort_value(array) for name, array in feed.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._own_outputs:
            # ONNX Runtime copies outputs from a GPU.
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return [_array(value) for value in binding.get_outputs()]


def _ort_value(array: NDArray[np.generic]) -> onnxruntime.OrtValue:
    import onnx
    import onnxruntime

    if array.dtype.name == _BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> NDArray[np.generic]:  # noqa: ANN401 - onnxruntime ships no types
    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[np.generic] = value.numpy()
        return array
    import ctypes

    import ml_dtypes

    if value.device_name() != "cpu":
        msg = f"a bfloat16 output is on {value.device_name()}, where it cannot be read"
        raise BackendError(msg, hint="run the model on device cpu")
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    # By way of bytearray, because an array over bytes cannot be written to.
    flat: NDArray[np.generic] = np.frombuffer(bytearray(raw), dtype=np.dtype(ml_dtypes.bfloat16))
    return flat.reshape(tuple(value.shape()))
