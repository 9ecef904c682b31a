"""Writes the CPU seconds of every import of this process to the file in IMPORT_SECONDS.

Python imports this module at its start, where this folder is on PYTHONPATH. What an import imports itself counts once.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE = os.environ.get("IMPORT_SECONDS")
_LEAST = 0.002
_state = {"is_importing": False}


def _timed(imports: Callable[..., Any]) -> Callable[..., Any]:
    def timed(name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the function
        if _state["is_importing"]:
            return imports(name, *arguments, **options)
        _state["is_importing"], started = True, time.process_time()
        try:
            return imports(name, *arguments, **options)
        finally:
            _state["is_importing"], spent = False, time.process_time() - started
            if spent >= _LEAST:
                with Path(str(_FILE)).open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps([name.partition(".")[0], spent]) + "\n")

    return timed


if _FILE:
    builtins.__import__ = _timed(builtins.__import__)
    importlib.import_module = _timed(importlib.import_module)
