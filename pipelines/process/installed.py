"""Tell code of Python and of installed packages from the user's."""

from __future__ import annotations

import importlib
import sysconfig
from pathlib import Path
from typing import Any

import paritygate

# Parts of the paths of installed packages, ourselves among them.
INSTALLED = ("/site-packages/", "/dist-packages/", f"{Path(paritygate.__file__).parent}/")
# Prefixes of the paths of Python's own modules.
PYTHONS_OWN = ("<", f"{sysconfig.get_paths()['stdlib']}/")


def is_installed(path: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    return path.startswith(PYTHONS_OWN) or any(part in path for part in INSTALLED)


def compile_own_modules() -> None:
    """Have Python compile the user's modules from their source, every time, and keep no bytecode.

    Python trusts bytecode if time and size of the source match. An edited source with the same time and size would not
    run.
    """
    importing: Any = importlib.import_module("importlib._bootstrap_external")
    place_of = importing.cache_from_source

    def place(path: str, *args: Any, **options: Any) -> str:  # noqa: ANN401 - as importlib.util.cache_from_source
        if is_installed(path):
            return str(place_of(path, *args, **options))
        # Tells importlib that there is no place for it.
        raise NotImplementedError

    importing.cache_from_source = place
