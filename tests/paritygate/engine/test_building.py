"""What is said where a format cannot be built: first that the GPU is missing, then what to install."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paritygate import backends
from paritygate.backends import install_command
from paritygate.engine import gpu_fit
from paritygate.engine.gpu_fit import require_builder
from paritygate.errors import MissingBackendError, MissingGpuError
from paritygate.formats import ENGINE_FORMATS, FORMATS
from paritygate.machine import Gpu

_GPU = Gpu(name="NVIDIA L4", capability="89", driver="580.1", cuda="13.0")


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {name: replace(item, module="not_installed_anywhere") for name, item in backends.BACKENDS.items()}
    monkeypatch.setattr(backends, "BACKENDS", nowhere)


def test_without_a_gpu_nothing_is_to_be_installed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_fit, "gpu_of_machine", lambda: None)

    with pytest.raises(MissingGpuError) as caught:
        require_builder("tensorrt")

    assert str(caught.value) == ("TensorRT builds engines on the GPU that runs them, but this machine has none")
    assert "pack --run DIR; on that machine: convert-and-validate unpack PACK, then " in caught.value.hint
    assert "pip" not in caught.value.hint
    assert caught.value.exit_code == 5


def test_with_a_gpu_the_library_is_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_fit, "gpu_of_machine", lambda: _GPU)

    with pytest.raises(MissingBackendError, match="tensorrt is needed to make and run engines") as caught:
        require_builder("tensorrt")

    assert not isinstance(caught.value, MissingGpuError)
    assert caught.value.hint == install_command("gpu")


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"tensorrt"}))
def test_what_is_built_ahead_of_time_needs_its_package_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_fit, "gpu_of_machine", lambda: None)

    with pytest.raises(MissingBackendError, match="is not available") as caught:
        require_builder(name)

    assert caught.value.hint.startswith("pip install ")


def test_engines_that_are_built_on_their_gpu_are_engines() -> None:
    assert {name for name, item in FORMATS.items() if item.is_built_on_gpu} == ENGINE_FORMATS - {"tensorrt-rtx"}
