"""Import the object that a spec names as `module:callable`, and list the files that this imported."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from paritygate.backends import BACKENDS, require_backend
from paritygate.errors import UsageError
from paritygate.text import current_folder, from_here, meant

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OBJECTS_BEFORE_COLLECTING = 50_000


def is_object_path(text: str) -> bool:
    """Return whether `text` is of the form `module:callable` and not a path."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def use_folder(folder: Path) -> None:
    """Put `folder` first on `sys.path`, so that modules beside a spec can be imported."""
    text = str(folder.resolve())
    if text in sys.path:
        sys.path.remove(text)
    sys.path.insert(0, text)


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Have Python look for unused cycles less often inside.

    An import of a framework makes a million objects that stay, and a look at every 700 of them takes a tenth of it.
    """
    before = gc.get_threshold()
    # 0 turns the looking off.
    rare = (max(before[0], _OBJECTS_BEFORE_COLLECTING) if before[0] else 0, *before[1:])
    gc.set_threshold(*rare)
    try:
        yield
    finally:
        if gc.get_threshold() == rare:
            # Otherwise the user's code has set its own.
            gc.set_threshold(*before)


def load_object(text: str, folder: Path | None = None) -> Any:  # noqa: ANN401 - what a user's module holds is free
    """Return the object named by `module:callable`. Executes the module's code.

    `folder` goes first on `sys.path`, so that modules beside a spec are found. Modules of paritygate need no folder.
    Without it, no file there can replace a module of Python or of a framework.

    Raises:
        UsageError: The module, a module that it imports, or the name in it does not exist, its syntax is wrong, or it
            is one of Python's own.
    """
    _modules_before_users()
    module_name, _, attribute = text.partition(":")
    root = module_name.partition(".")[0]
    if root in sys.stdlib_module_names:
        # Python imported it before, so a file of that name beside the spec would be ignored.
        msg = f"module {root!r} of {text!r} is a module of Python itself, which your file cannot replace"
        raise UsageError(msg, hint=f"rename {root}.py, and name it by its new name")
    if folder is not None and module_name.partition(".")[0] != _PACKAGE.name:
        use_folder(folder)
    try:
        target: Any = importlib.import_module(module_name)
    except SyntaxError as err:
        place = place_in_users_code(err) or err.filename
        msg = f"{text!r} cannot be loaded, because the syntax of {place} is wrong ({err.msg})"
        raise UsageError(msg, hint="correct that line") from err
    except ModuleNotFoundError as err:
        if err.name is None or not (module_name == err.name or module_name.startswith(err.name + ".")):
            raise missing_module(text, err) from err
        require_backend_of(err)
        msg = f"module {module_name!r} of {text!r} was not found"
        hint = "modules are looked up in the spec's folder first, then among the installed packages"
        if module_name.endswith(".py"):
            hint = f"a module is named without .py: {module_name.removesuffix('.py')}:{attribute}"
        elif folder is not None:
            hint += meant(module_name, sorted(path.stem for path in folder.glob("*.py")))
        raise UsageError(msg, hint=hint) from err
    for part in attribute.split("."):
        if not hasattr(target, part):
            msg = f"module {module_name!r} has no {attribute!r}"
            near = meant(part, [name for name in dir(target) if not name.startswith("_")])
            raise UsageError(msg, hint=f"name a function or class that the module defines, as module:callable{near}")
        target = getattr(target, part)
    return target


def require_backend_of(err: ModuleNotFoundError) -> None:
    """Raise MissingBackendError, whose hint installs it, if the missing module is that of a backend."""
    root = (err.name or "").partition(".")[0]
    for backend in BACKENDS.values():
        if root == backend.module:
            require_backend(backend.name)


def missing_module(text: str, err: ModuleNotFoundError) -> UsageError:
    """Return the error that the code of `module:callable` needs a module that is not installed, and where.

    Raises:
        MissingBackendError: The module is that of a backend; the hint installs it.
    """
    require_backend_of(err)
    what = f"the module {err.name!r}, which is not installed" if err.name else f"a missing module ({err})"
    msg = f"{text!r} cannot be loaded, because {place_in_users_code(err) or 'its code'} needs {what}"
    return UsageError(msg, hint="install the package that has it, or correct the import")


def place_in_users_code(err: BaseException) -> str:
    """Return the `file:line` of the user's code that raised an error, or called what did; empty if none did."""
    if isinstance(err, SyntaxError):
        places = [(str(err.filename), err.lineno or 0)]
    else:
        places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(err.__traceback__)]
    for file, line in reversed(places):
        path, here = Path(file).resolve(), Path(current_folder())
        if path.is_file() and not is_ours(path) and not _is_installed(path, here):
            return f"{from_here(path)}:{line}"
    before = err.__cause__ or err.__context__
    return "" if before is None else place_in_users_code(before)


def user_files(folder: Path) -> list[Path]:
    """Return every file below `folder` that user code was imported from, on which a source depends.

    Everything imported since the first `load_object` counts, because samples and source may share a module. Installed
    packages do not count, even in an environment below the folder, and paritygate does not.
    """
    root = folder.resolve()
    before = _modules_before_users()
    modules = [module for module in list(sys.modules.values()) if id(module) not in before]
    files = {path for module in modules if (path := file_of_module(module)) is not None}
    return sorted(
        path for path in files if path.is_relative_to(root) and not is_ours(path) and not _is_installed(path, root)
    )


def file_of_module(module: ModuleType | None) -> Path | None:
    """Return the file that a module was imported from, links followed; None if there is none."""
    file = getattr(module, "__file__", None)
    # Modules made at run time may claim a file that does not exist.
    if not isinstance(file, str) or not Path(file).is_absolute():
        return None
    path = Path(file).resolve()
    return path if path.is_file() else None


def is_ours(path: Path) -> bool:
    """Return whether a file, links followed, belongs to this package, under whatever name it was imported."""
    return any(path.is_relative_to(folder) for folder in _own_folders())


@functools.cache
def _own_folders() -> frozenset[Path]:
    # In a checkout, parts of the package are links to folders beside it.
    return frozenset(path.resolve() for path in (_PACKAGE, *_PACKAGE.iterdir()) if path.is_dir())


@functools.cache
def _modules_before_users() -> Mapping[int, ModuleType]:
    """Return, by identity, the modules from before the first lookup of user code, which are not the user's."""
    return {id(module): module for module in list(sys.modules.values())}


def _is_installed(path: Path, folder: Path) -> bool:
    environment = Path(sys.prefix).resolve()
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    # A prefix such as /usr may also contain everything on a machine.
    if environment != folder and environment.is_relative_to(folder):
        places.add(environment)
    return not _INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(place) for place in places)
