"""The copy of a `module:callable`: which files it holds, and that it is the copy that is loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paritygate import importing
from paritygate.artifact import ARTIFACT_FILE
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.importing import load_object, user_files
from paritygate.models.source import ModelRef, SourceKind, load_source_object
from paritygate.models.source_copy import (
    CODE_FOLDER,
    SOURCE_FILE,
    SourceCopy,
    load_source_copy,
    read_source_copy,
    write_source_copy,
)

_ROOT = Path(__file__).resolve().parents[3]
# What is told apart by the names of its classes is told without a framework.
_MODEL = """
import numpy as np


class _Weight:
    path = "kernel"

    def __init__(self, fill):
        self._fill = fill

    def numpy(self):
        return np.full(3, self._fill, dtype=np.float32)


def model_of(fill):
    kind = type("Model", (), {"__module__": "keras.src.models.model"})
    model = kind()
    model.weights = [_Weight(fill)]
    return model
"""
# Imports files of the package from where they lie in the checkout, as `multiprocessing` does with the main program.
_ALIASES = """
import importlib.util
import json
import sys
from pathlib import Path

FILES = {
    "__mp_main__": "pipelines/process/child_main.py",
    "main_again": "src/paritygate/__main__.py",
    "errors_again": "src/paritygate/errors.py",
    "verdict_again": "validate/gate/verdict.py",
    "rows_again": "fixtures/linear_model.py",
}


def imported(root):
    for name, file in FILES.items():
        spec = importlib.util.spec_from_file_location(name, Path(root) / file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
"""


@pytest.fixture(autouse=True)
def as_in_a_child(tmp_path: Path) -> Iterator[None]:
    """Have nothing imported for users yet, as in a process that has just begun a job; forget afterwards what was."""
    path, modules = list(sys.path), dict(sys.modules)
    importing._modules_before_users.cache_clear()
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.modules.update(modules)
    importing._modules_before_users.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "spec"
    found.mkdir()
    _write(found, {"making.py": _MODEL})
    return found


def _write(folder: Path, modules: Mapping[str, str]) -> None:
    for name, text in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")


def _source(folder: Path, text: str = "net:make") -> ModelRef:
    return ModelRef(text=text, folder=folder, kind=SourceKind.CALLABLE)


def _copied(source: ModelRef, place: Path, *declared: str) -> SourceCopy:
    found, model = load_source_object(source)
    place.mkdir(exist_ok=True)
    (place / ARTIFACT_FILE).touch()
    return write_source_copy(place, found, model, {}, declared)


_NET = "from making import model_of\n\ndef make():\n    return model_of(1.0)\n"


def test_a_copy_holds_what_was_imported_and_what_is_declared(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET, "unused.py": "", "vocabulary.txt": "a b"})

    copy = _copied(_source(folder), tmp_path / "artifact", "vocabulary.txt")

    assert set(copy.files) == {"net.py", "making.py", "vocabulary.txt"}
    assert read_source_copy(tmp_path / "artifact") == copy
    assert "modules" not in json.loads((tmp_path / "artifact" / SOURCE_FILE).read_text(encoding="utf-8"))


def test_a_module_that_the_samples_were_imported_with_is_a_file_of_the_source(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": "import sizes\n" + _NET + "def rows():\n    pass\n", "sizes.py": "WIDTH = 4\n"})
    load_object("net:rows", folder)

    copy = _copied(_source(folder), tmp_path / "artifact")

    assert set(copy.files) == {"net.py", "sizes.py", "making.py"}


def test_what_the_process_had_imported_before_is_no_file_of_the_source(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET, "program.py": ""})
    _import_as("__main__", folder / "program.py")
    _import_as("program", folder / "program.py")

    copy = _copied(_source(folder), tmp_path / "artifact")

    assert set(copy.files) == {"net.py", "making.py"}


def test_installed_packages_below_the_folder_are_no_files_of_the_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = ("own.py", "lib/site-packages/bought.py", "usr/lib/python3/dist-packages/given.py", "env/inside.py")
    _write(folder, dict.fromkeys((*below, "net.py"), ""))
    monkeypatch.setattr(sys, "prefix", str(folder / "env"))
    load_object("net:__name__", folder)
    for name in below:
        _import_as(f"found_{Path(name).stem}", folder / name)

    assert user_files(folder) == [folder / "net.py", folder / "own.py"]


def test_an_environment_that_holds_the_folder_hides_nothing_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(folder, {"net.py": ""})
    monkeypatch.setattr(sys, "prefix", str(folder.parent))
    load_object("net:__name__", folder)

    assert user_files(folder) == [folder / "net.py"]


def _import_as(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def test_our_own_files_are_never_the_users_whatever_they_are_imported_as(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "aliases.py": _ALIASES,
            "making.py": _MODEL,
            # No module of the checkout's: it is found by PYTHONPATH, as an installed one is.
            "net.py": "import aliases\nfrom making import model_of\n\n"
            "def make():\n    aliases.imported(aliases.Path.cwd())\n    return model_of(1.0)\n",
            "program.py": """
                import sys
                from pathlib import Path

                from paritygate.artifact import ARTIFACT_FILE
                from paritygate.models.source import ModelRef, SourceKind, load_source_object
                from paritygate.models.source_copy import load_source_copy, write_source_copy

                place = Path(sys.argv[1])
                source = ModelRef(text="net:make", folder=Path.cwd(), kind=SourceKind.CALLABLE)
                found, model = load_source_object(source)
                copy = write_source_copy(place, found, model, {}, ())
                (place / ARTIFACT_FILE).touch()
                import aliases
                print(sorted(aliases.FILES.keys() & sys.modules.keys()), dict(copy.files))
                print(load_source_copy(copy.source_in(place))[0].kind)
            """,
        },
    )
    (tmp_path / "artifact").mkdir()

    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "artifact")],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(_ROOT / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines() == [
        "['__mp_main__', 'errors_again', 'main_again', 'rows_again', 'verdict_again'] {}",
        "keras",
    ], done.stderr


@pytest.mark.torch
@pytest.mark.thorough
def test_the_demos_source_is_copied_where_the_user_stands_in_the_checkout(tmp_path: Path) -> None:
    command = ["export", "klue-sts", "--target", "torch-fp32", "--root", str(tmp_path), "--quiet"]

    done = subprocess.run(
        [sys.executable, "-m", "paritygate", *command], cwd=_ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    (said,) = tmp_path.glob(f"runs/klue-sts/*/torch-fp32/{SOURCE_FILE}")
    assert read_source_copy(said.parent).files == {}


@pytest.mark.thorough
def test_the_copy_is_loaded_though_the_source_is_imported_already(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET})
    copy = _copied(_source(folder), tmp_path / "artifact")
    theirs = sys.modules["net"]
    (folder / "net.py").write_text("raise RuntimeError('not the copy')\n", encoding="utf-8")

    found, _ = load_source_copy(copy.source_in(tmp_path / "artifact"))

    assert found.kind is SourceKind.KERAS
    assert sys.modules["net"] is theirs


@pytest.mark.thorough
def test_another_name_of_a_copied_module_is_the_copys_as_well(folder: Path, tmp_path: Path) -> None:
    # As where files of a former package are still unpickled: `old` was renamed to `layers`.
    _write(
        folder,
        {
            "layers.py": "FILL = 1.0\n",
            "net.py": "import sys\n\nimport layers\nfrom making import model_of\n\nsys.modules['old'] = layers\n\n"
            "def make():\n    import old\n    return model_of(old.FILL)\n",
        },
    )
    copy = _copied(_source(folder), tmp_path / "artifact")
    sys.modules["layers"].FILL = 2.0  # type: ignore[attr-defined]  # a module has what its file gives it

    load_source_copy(copy.source_in(tmp_path / "artifact"))

    assert sys.modules["old"].FILL == 2.0


def test_a_module_of_the_same_file_name_in_another_package_stays_where_it_is(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "lib"
    _write(elsewhere, {"bought/__init__.py": "", "bought/layers.py": "FILL = 1.0\n"})
    _write(
        folder,
        {
            "layers.py": "",
            "net.py": "import bought.layers\nimport layers\nfrom making import model_of\n\n"
            "def make():\n    return model_of(bought.layers.FILL)\n",
        },
    )
    sys.path.append(str(elsewhere))
    copy = _copied(_source(folder), tmp_path / "artifact")
    theirs = sys.modules["bought.layers"]

    load_source_copy(copy.source_in(tmp_path / "artifact"))

    assert set(copy.files) == {"layers.py", "making.py", "net.py"}
    assert sys.modules["bought.layers"] is theirs


def test_code_that_is_found_elsewhere_than_in_the_copy_is_refused(folder: Path, tmp_path: Path) -> None:
    # With the modules in `src/`, on the path by other means, the copy lies where nobody looks for it.
    _write(folder / "src", {"pack/__init__.py": "", "pack/net.py": _NET})
    sys.path.insert(0, str(folder / "src"))
    copy = _copied(_source(folder, "pack.net:make"), tmp_path / "artifact")
    assert "src/pack/net.py" in copy.files

    with pytest.raises(ArtifactIntegrityError) as caught:
        load_source_copy(copy.source_in(tmp_path / "artifact"))

    named = folder / "src/pack/__init__.py"
    place = tmp_path / "artifact" / CODE_FOLDER
    assert (
        str(caught.value) == f"module 'pack' of pack.net:make was imported from {named}, not from the copy in {place}"
    )
    assert caught.value.hint == "make it again with: convert-and-validate export"


def test_a_copy_that_makes_other_parameters_is_refused(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET})
    copy = _copied(_source(folder), tmp_path / "artifact")
    (tmp_path / "artifact" / CODE_FOLDER / "net.py").write_text(_NET.replace("1.0", "2.0"), encoding="utf-8")

    with pytest.raises(ArtifactIntegrityError, match="that differ from those recorded"):
        load_source_copy(copy.source_in(tmp_path / "artifact"))


@pytest.mark.parametrize("outside", ["../weights.bin", "link/weights.bin"])
def test_a_declared_file_outside_of_the_folder_is_not_copied(folder: Path, tmp_path: Path, outside: str) -> None:
    _write(folder, {"net.py": _NET})
    (tmp_path / "weights.bin").touch()
    (folder / "link").symlink_to(tmp_path)

    with pytest.raises(UsageError, match=f"model.files names {outside!r}, which is outside of {folder}") as caught:
        _copied(_source(folder), tmp_path / "artifact", outside)

    assert caught.value.hint == "put the files that the code reads below the spec's folder"


def test_a_file_whose_name_no_other_machine_may_take_is_not_copied(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET, "a\\b.txt": ""})

    with pytest.raises(UsageError, match=r"the files of net:make cannot be kept with it: the name 'a.+b.txt' holds a"):
        _copied(_source(folder), tmp_path / "artifact", "a\\b.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {"../net.py": "sha256:0"}}, "the name '../net.py' leaves its folder"),
        ({"files": {"/net.py": "sha256:0"}}, "the name '/net.py' is an absolute path"),
        ({"files": {"a\\net.py": "sha256:0"}}, "holds a character that not every machine allows in a name"),
        ({"files": {"net.py\0": "sha256:0"}}, "holds a character that not every machine allows in a name"),
        ({"text": "../net.py"}, "'../net.py' is not a module:callable"),
    ],
)
def test_a_record_that_names_files_elsewhere_is_damaged(
    folder: Path, tmp_path: Path, change: Mapping[str, Any], message: str
) -> None:
    _write(folder, {"net.py": _NET})
    _copied(_source(folder), tmp_path / "artifact")
    path = tmp_path / "artifact" / SOURCE_FILE
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")

    with pytest.raises(InputFileError) as caught:
        read_source_copy(tmp_path / "artifact")

    assert str(caught.value).startswith(f"{path} is corrupt: ")
    assert message in str(caught.value)


def test_the_copy_of_an_earlier_version_is_read(folder: Path, tmp_path: Path) -> None:
    _write(folder, {"net.py": _NET})
    copy = _copied(_source(folder), tmp_path / "artifact")
    path = tmp_path / "artifact" / SOURCE_FILE
    data = {**json.loads(path.read_text(encoding="utf-8")), "modules": {"net": "net.py", "__mp_main__": "net.py"}}
    path.write_text(json.dumps(data), encoding="utf-8")

    assert read_source_copy(tmp_path / "artifact") == copy
