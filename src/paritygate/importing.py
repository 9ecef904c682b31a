"""Turn `module:callable` as written in a spec into the object it names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from paritygate.backends import BACKENDS, require_backend
from paritygate.errors import UsageError

__all__ = ["is_object_path", "load_object", "require_backend_of", "use_folder"]


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


def load_object(text: str) -> Any:  # noqa: ANN401 - what the user's module holds is the user's choice
    """Return the object named by `module:callable`.

    Executes the module's code.

    Raises:
        UsageError: There is no such module or no such name in it.
    """
    module_name, _, attribute = text.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        require_backend_of(err)
        if err.name is None or not (module_name == err.name or module_name.startswith(err.name + ".")):
            raise
        msg = f"module {module_name!r} of {text!r} was not found"
        raise UsageError(
            msg, hint="modules are looked up in the spec's folder first, then among the installed packages"
        ) from err
    for part in attribute.split("."):
        if not hasattr(found, part):
            msg = f"module {module_name!r} has no {attribute!r}"
            raise UsageError(msg, hint="name a function or class that the module defines, as module:callable")
        found = getattr(found, part)
    return found


def require_backend_of(err: ModuleNotFoundError) -> None:
    """Do nothing unless the module that was not found is a framework's, which an extra of ours installs.

    Raises:
        MissingBackendError: It is; the hint is the command that installs it.
    """
    root = (err.name or "").partition(".")[0]
    for backend in BACKENDS.values():
        if root == backend.module:
            require_backend(backend.name)
