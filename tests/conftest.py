"""What all tests share: reasons to skip, data from outside the project, and how hypothesis behaves."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from paritygate.backends import backend_state
from paritygate.machine import gpu_of_machine

# jsonschema imports this package only to check addresses. Its import builds 38 grammars, and takes over a second.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # Python's way to have an import fail

# The same examples in every run: a red build is red again on the next machine. A loaded machine is not a failure.
# Half as many examples as hypothesis makes unasked: they are the same ones every time, and so find no more in time.
hypothesis.settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=50)
hypothesis.settings.load_profile("deterministic")

# A shell that starts this in the background has it ignore Ctrl-C, and so would every tool that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# After each 700 new objects, as Python does it unasked, a twentieth of all time goes into the search for garbage.
gc.set_threshold(50_000)

_ROOT = Path(__file__).resolve().parents[1]
_MODULES_OF_A_FRAMEWORK = 100
_BACKENDS_OF_MARKER = {
    "litert": ("litert",),
    "nncf": ("nncf",),
    "openvino": ("openvino",),
    "rtx": ("tensorrt-rtx", "polygraphy"),
    "tensorflow": ("tensorflow", "tf2onnx"),
    "torch": ("torch", "onnxscript"),
}


def _reason_without_backend(marker: str) -> str | None:
    missing = [state for state in map(backend_state, _BACKENDS_OF_MARKER[marker]) if not state.is_available]
    return f"{missing[0].reason}: {missing[0].install}" if missing else None


def _reason_without_gpu() -> str | None:
    return None if gpu_of_machine() else "needs an NVIDIA GPU, but the CUDA driver shows none to this process"


def _reason_without_server() -> str | None:
    return None if shutil.which("tritonserver") else "needs a model server, and tritonserver is not on the path"


_REASONS: dict[str, Callable[[], str | None]] = {
    "gpu": _reason_without_gpu,
    "serving": _reason_without_server,
    **{marker: functools.partial(_reason_without_backend, marker) for marker in _BACKENDS_OF_MARKER},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with its reason, each test whose marker asks for what this machine lacks."""
    names_of = [(item, {mark.name for mark in item.iter_markers()}) for item in items]
    for marker, reason_of in _REASONS.items():
        marked = [item for item, names in names_of if marker in names]
        # Asked once, and only if some test wants it: looking for a GPU wakes the driver.
        if marked and (reason := reason_of()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _freeze() -> None:
    # A framework is a million objects that live until the end. Python visits all of them whenever it looks for garbage,
    # and Keras asks for that after each model: a fifth of the time of tests that convert.
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Leave what collecting the tests has imported out of each later search for garbage."""
    _freeze()


def _read_operators_once() -> None:
    # PyTorch reads the sources of 500 operators at each export to ONNX, which is two thirds of the time of a small one.
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    if module is not None and not hasattr(module.ONNXRegistry.from_torchlib, "cache_info"):
        module.ONNXRegistry.from_torchlib = staticmethod(functools.cache(module.ONNXRegistry.from_torchlib))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Leave a framework that a test imported out of each later search for garbage."""
    _read_operators_once()
    known = len(sys.modules)
    done = yield
    if len(sys.modules) - known > _MODULES_OF_A_FRAMEWORK:
        _freeze()
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded with `record_property("figures", ...)`: of fuzzing, of hostile files."""
    lines = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in getattr(report, "user_properties", ())
        if name == "figures" and report.when == "call"
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


def _test_data(relative: str) -> Path:
    folder = os.environ.get("PARITYGATE_TEST_DATA")
    if not folder:
        pytest.skip(f"PARITYGATE_TEST_DATA is not set: it names the folder that holds {relative}")
    path = Path(folder) / relative
    if not path.exists():
        pytest.fail(f"PARITYGATE_TEST_DATA is {folder!r}, and {relative} is not in it")
    return path


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Let files be written without waiting for the disk: only a power cut would show it, and it takes milliseconds.

    The order in which a release syncs its files is a matter of `test_repository_release.py`, and children do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def battery() -> Path:
    """Return the folder of model pairs with known faults, one folder a pair."""
    return _test_data("battery")


@pytest.fixture(scope="session")
def klue_sts_file() -> Path:
    """Return the official development set of KLUE STS, 519 sentence pairs."""
    return _test_data("data/klue-sts/klue-sts-v1.1_dev.json")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Return the root of the checkout."""
    return _ROOT


@pytest.fixture
def zoo_on_path(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the modules of `benchmarks/zoo` be found, and forget them after: users have modules of these names, too."""
    folder = project_root / "benchmarks" / "zoo"
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
            del sys.modules[name]
