"""What is asked of an engine's build, its shapes, the record beside it, and the library behind it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paritygate.backends import install_command
from paritygate.codec import from_data, to_data
from paritygate.engine.library import TENSORRT, TENSORRT_RTX, EngineLibrary
from paritygate.engine.record import ENGINE_FILE, RECORD_FILE, EngineRecord
from paritygate.engine.settings import EngineSettings, HardwareCompatibility, ProfileShapes, profile_of
from paritygate.errors import InputFileError, UsageError
from paritygate.precision import Precision
from paritygate.signature import Dim, Signature, TensorSpec

_SETTINGS = EngineSettings(
    workspace_mb=256,
    optimization_level=4,
    hardware_compatibility=HardwareCompatibility.AMPERE_PLUS,
    version_compatible=True,
    compute_capabilities=("8.6", "12.0"),
    timing_cache=Path("/cache/timings"),
)
_SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence")),
        TensorSpec(name="image", dtype="float32", shape=("batch", 3, 8)),
        TensorSpec(name="scalar", dtype="float32", shape=()),
    ),
    outputs=(TensorSpec(name="score", dtype="float32", shape=("batch",)),),
    dims={"batch": Dim(min=1, opt=4, max=16), "sequence": Dim(min=2, opt=64, max=128)},
)
_PROFILE = {
    "ids": ProfileShapes(min=(1, 2), opt=(4, 64), max=(16, 128)),
    "image": ProfileShapes(min=(1, 3, 8), opt=(4, 3, 8), max=(16, 3, 8)),
    "scalar": ProfileShapes(min=(), opt=(), max=()),
}
_RECORD = EngineRecord(
    library=TENSORRT_RTX,
    version="1.7.1.116",
    precision=Precision.FP16,
    signature=_SIGNATURE,
    profile=_PROFILE,
    tf32=False,
    settings=_SETTINGS,
    dtype_counts={"HALF": {"CONVOLUTION": 53}, "FLOAT": {"CAST": 2}},
    built_on={"name": "NVIDIA H100", "capability": "90"},
    targets="compute capability 8.6, 12.0",
)


@pytest.mark.parametrize("settings", [EngineSettings(), _SETTINGS])
def test_settings_are_read_as_they_were_written(settings: EngineSettings) -> None:
    assert from_data(EngineSettings, json.loads(json.dumps(to_data(settings)))) == settings


def test_settings_are_json_under_the_names_of_the_fields() -> None:
    assert to_data(_SETTINGS) == {
        "workspace_mb": 256,
        "optimization_level": 4,
        "hardware_compatibility": "ampere_plus",
        "version_compatible": True,
        "compute_capabilities": ["8.6", "12.0"],
        "timing_cache": "/cache/timings",
    }


def test_a_profile_holds_the_declared_sizes_of_every_input() -> None:
    assert profile_of(_SIGNATURE) == _PROFILE


def test_a_profile_is_read_as_it_was_written() -> None:
    shapes = _PROFILE["image"]

    assert from_data(ProfileShapes, json.loads(json.dumps(to_data(shapes)))) == shapes


def test_a_profile_names_every_size_that_is_not_declared_once() -> None:
    signature = Signature(
        inputs=(
            TensorSpec(name="a", dtype="float32", shape=("batch", "width", None)),
            TensorSpec(name="b", dtype="float32", shape=("width",)),
            TensorSpec(name="c", dtype="float32", shape=None),
        ),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("other",)),),
        dims={"batch": Dim(min=1, opt=1, max=2)},
    )

    with pytest.raises(UsageError) as caught:
        profile_of(signature)

    assert str(caught.value) == (
        "an engine needs a range of shapes, but no sizes are declared for dim 'width', dim 2 of 'a', the shape of 'c'"
    )
    assert caught.value.hint == "declare them, such as model.dims: {batch: {min: 1, opt: 8, max: 64}}"


def test_a_dim_fixed_at_no_size_stays_in_its_place() -> None:
    signature = Signature(inputs=(TensorSpec(name="a", dtype="float32", shape=(0, 3)),), outputs=())

    assert profile_of(signature) == {"a": ProfileShapes(min=(0, 3), opt=(0, 3), max=(0, 3))}


@pytest.mark.parametrize(
    "record", [_RECORD, dataclasses.replace(_RECORD, built_on=None, dtype_counts={}, settings=EngineSettings())]
)
def test_a_record_is_read_as_it_was_written(tmp_path: Path, record: EngineRecord) -> None:
    record.save(tmp_path / ENGINE_FILE)

    assert EngineRecord.load(tmp_path / ENGINE_FILE) == record


def test_an_engine_without_its_record_is_refused(tmp_path: Path) -> None:
    engine = tmp_path / ENGINE_FILE

    with pytest.raises(InputFileError) as caught:
        EngineRecord.load(engine)

    assert str(caught.value) == (
        f"{engine} has no engine.json beside it, which lists its inputs, precision and versions"
    )
    assert caught.value.hint == "give an unchanged engine: convert-and-validate build --run DIR"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "not a mapping"),
        ("null", "not a mapping"),
        ("{}", "library is missing"),
    ],
)
def test_a_record_that_is_no_record_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / RECORD_FILE).write_text(text, encoding="utf-8")

    with pytest.raises(InputFileError) as caught:
        EngineRecord.load(tmp_path / ENGINE_FILE)

    assert str(caught.value).startswith(f"{tmp_path / RECORD_FILE} is corrupt: ")
    assert words in str(caught.value)
    assert caught.value.hint == "build the engine again: convert-and-validate build --run DIR"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("precision", "fp64", "precision is 'fp64' (allowed: "),
        ("profile", {"ids": {"min": [1], "opt": [1]}}, "profile.ids.max is missing"),
        ("profile", [], "profile is [], not a mapping"),
        ("settings", {"workspace_mb": "8"}, "settings.workspace_mb is '8', not a whole number"),
        ("signature", {"inputs": [{"name": "x", "dtype": "float33", "shape": []}], "outputs": []}, "dtype 'float33'"),
        ("signature", 7, "signature is 7, not a mapping"),
    ],
)
def test_a_record_with_one_wrong_entry_is_refused(tmp_path: Path, key: str, value: object, words: str) -> None:
    _RECORD.save(tmp_path / ENGINE_FILE)
    data = json.loads((tmp_path / RECORD_FILE).read_text(encoding="utf-8"))
    (tmp_path / RECORD_FILE).write_text(json.dumps(data | {key: value}), encoding="utf-8")

    with pytest.raises(InputFileError) as caught:
        EngineRecord.load(tmp_path / ENGINE_FILE)

    assert "is corrupt" in str(caught.value)
    assert words in str(caught.value)


def test_every_entry_of_a_record_is_needed(tmp_path: Path) -> None:
    _RECORD.save(tmp_path / ENGINE_FILE)
    data = json.loads((tmp_path / RECORD_FILE).read_text(encoding="utf-8"))

    for name in (field.name for field in dataclasses.fields(EngineRecord)):
        (tmp_path / RECORD_FILE).write_text(json.dumps({key: data[key] for key in data if key != name}))
        with pytest.raises(InputFileError, match=f"{name} is missing"):
            EngineRecord.load(tmp_path / ENGINE_FILE)


@pytest.mark.parametrize(
    ("name", "version", "title", "major"),
    [(TENSORRT, "10.16.1.11", "TensorRT 10.16.1.11", 10), (TENSORRT_RTX, "1.7.1.116", "TensorRT-RTX 1.7.1.116", 1)],
)
def test_a_library_says_its_version(name: str, version: str, title: str, major: int) -> None:
    module = type(sys)("stand_in")
    module.__version__ = version  # type: ignore[attr-defined] # as the libraries have it

    library = EngineLibrary(name=name, module=module)

    assert (library.title, library.major) == (title, major)


def run_python(code: str, **environment: str) -> list[str]:
    """Return the lines that a process of its own prints: a process has one library behind engines for good."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("POLYGRAPHY")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=env | environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture
def other_library(tmp_path: Path) -> str:
    """Return a folder that holds a module `tensorrt`, as far as opening goes."""
    (tmp_path / "tensorrt.py").write_text("__version__ = '10.16.1.11'\n", encoding="utf-8")
    return str(tmp_path)


@pytest.mark.rtx
def test_rtx_is_opened_under_the_name_that_polygraphy_looks_for() -> None:
    assert run_python(
        """
        import importlib.util, sys
        assert importlib.util.find_spec("tensorrt_rtx") is None
        from paritygate.engine.library import open_library
        library = open_library("tensorrt-rtx")
        from polygraphy import config, mod
        import tensorrt_rtx
        from polygraphy.backend.tensorrt_rtx import CreateConfigRTX
        from polygraphy.backend.trt import loader
        print(config.USE_TENSORRT_RTX, tensorrt_rtx is library.module, loader.trt.Builder is library.module.Builder)
        print(library.title == "TensorRT-RTX " + tensorrt_rtx.__version__, open_library("tensorrt-rtx") == library)
        """
    ) == ["True True True", "True True"]


@pytest.mark.rtx
def test_opening_rtx_leaves_the_parent_and_the_disk_as_they_were() -> None:
    before = dict(os.environ)

    run_python("from paritygate.engine.library import open_library; open_library('tensorrt-rtx')")

    assert dict(os.environ) == before
    assert run_python("import importlib.util; print(importlib.util.find_spec('tensorrt_rtx'))") == ["None"]


@pytest.mark.rtx
def test_a_process_that_opened_rtx_refuses_the_other(other_library: str) -> None:
    printed = run_python(
        """
        from paritygate.engine.library import open_library
        from paritygate.errors import BackendError
        open_library("tensorrt-rtx")
        import polygraphy.config
        try:
            open_library("tensorrt")
        except BackendError as err:
            print(err, err.hint, int(err.exit_code), sep="\\n")
        """,
        PYTHONPATH=other_library,
    )

    assert printed == [
        "this process already uses Polygraphy with the other library, so it cannot open TensorRT",
        "open it in a separate process",
        "5",
    ]


@pytest.mark.rtx
def test_a_process_that_opened_tensorrt_refuses_rtx(other_library: str) -> None:
    printed = run_python(
        """
        from paritygate.engine.library import open_library
        from paritygate.errors import BackendError
        print(open_library("tensorrt").title)
        import polygraphy.config
        print(polygraphy.config.USE_TENSORRT_RTX)
        try:
            open_library("tensorrt-rtx")
        except BackendError as err:
            print(err)
        """,
        PYTHONPATH=other_library,
        # Set by whoever started this process: what it opens decides.
        POLYGRAPHY_USE_TENSORRT_RTX="1",
    )

    assert printed == [
        "TensorRT 10.16.1.11",
        "False",
        "this process already uses Polygraphy with the other library, so it cannot open TensorRT-RTX",
    ]


@pytest.mark.rtx
def test_opening_the_other_before_polygraphy_is_used_is_refused_too(other_library: str) -> None:
    printed = run_python(
        """
        from paritygate.engine.library import open_library
        from paritygate.errors import BackendError
        open_library("tensorrt-rtx")
        try:
            open_library("tensorrt")
        except BackendError as err:
            print(err)
        """,
        PYTHONPATH=other_library,
    )

    assert printed == ["this process already uses Polygraphy with the other library, so it cannot open TensorRT"]


@pytest.mark.rtx
@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("tensorrt", "tensorrt", "TensorRT is installed but does not load: libnvinfer.so.10: cannot open"),
        ("tensorrt-rtx", "tensorrt_rtx_bindings", "TensorRT-RTX is installed but does not load: libnvinfer.so.10: can"),
    ],
)
def test_a_library_that_does_not_load_is_missing_in_words(tmp_path: Path, name: str, module: str, words: str) -> None:
    text = "raise OSError('libnvinfer.so.10: cannot open shared object file\\nsecond line')\n"
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")

    printed = run_python(
        f"""
        from paritygate.engine.library import open_library
        from paritygate.errors import MissingBackendError
        try:
            open_library("{name}")
        except MissingBackendError as err:
            print(err, err.hint, sep="\\n")
        """,
        PYTHONPATH=str(tmp_path),
    )

    extra = {"tensorrt": "gpu", "tensorrt-rtx": "tensorrt-rtx"}[name]
    assert printed[0].startswith(words)
    assert printed[1:] == [f"install it with its libraries: {install_command(extra)}"]


@pytest.mark.parametrize(
    ("hidden", "name", "words", "extra"),
    [
        ("tensorrt", "tensorrt", "tensorrt is needed to make and run engines, but is not available", "gpu"),
        (
            "tensorrt_rtx_bindings",
            "tensorrt-rtx",
            "tensorrt-rtx is needed to make engines ahead of time, without a GPU, but is not available",
            "tensorrt-rtx",
        ),
    ],
)
def test_a_library_that_is_not_installed_is_missing_in_words(hidden: str, name: str, words: str, extra: str) -> None:
    printed = run_python(
        f"""
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: None if name == "{hidden}" else find(name, package)
        from paritygate.engine.library import open_library
        from paritygate.errors import MissingBackendError
        try:
            open_library("{name}")
        except MissingBackendError as err:
            print(err, err.hint, sep="\\n")
        """
    )

    assert printed[0].startswith(words)
    assert printed[1] == install_command(extra)


@pytest.mark.parametrize("missing", ["polygraphy"])
def test_polygraphy_is_needed_too(missing: str, other_library: str) -> None:
    printed = run_python(
        f"""
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: None if name == "{missing}" else find(name, package)
        from paritygate.engine.library import open_library
        from paritygate.errors import MissingBackendError
        try:
            open_library("tensorrt")
        except MissingBackendError as err:
            print(err)
        """,
        PYTHONPATH=other_library,
    )

    assert printed == [
        "polygraphy is needed to build and run engines, but is not available: the module 'polygraphy' is not installed"
    ]
