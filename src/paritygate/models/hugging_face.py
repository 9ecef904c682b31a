"""Load a folder of weights, as `save_pretrained` of Hugging Face writes it, without its code and without downloads."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from paritygate.errors import InputFileError, MissingBackendError, UsageError
from paritygate.files import parse_json
from paritygate.text import a_or_an

CONFIG = "config.json"
_CLASS = re.compile(r"[A-Z][A-Za-z0-9_]*")
_LARGEST_CONFIG = 1 << 22


def holds_weights(path: Path) -> bool:
    """Return whether a path is a folder as `save_pretrained` writes it."""
    return (path / CONFIG).is_file()


def class_of_weights(weights: Path, *, command: str = "") -> str:
    """Return the class of transformers that loads the folder.

    `command` is for the error of a folder that needs a module of Python.

    Raises:
        UsageError: It needs code of the folder's, or a pickle, or does not name its class. The hint has the Python that
            loads it.
        InputFileError: The configuration cannot be read.
        MissingBackendError: The package transformers is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        msg = f"{weights} is a Hugging Face folder, but the package transformers is not installed"
        raise MissingBackendError(msg, hint="install it: pip install transformers")
    config = read_config(weights / CONFIG)
    named = config.get("architectures")
    kind = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    code = ""
    if "auto_map" in config:
        why, kind, code = "its config.json names Python code of its author (auto_map)", "AutoModel", "True"
    elif not _CLASS.fullmatch(kind):
        why, kind = "its config.json names no class in architectures", "AutoModel"
    elif not any(weights.glob("*.safetensors")):
        seen = ", ".join(sorted(file.name for file in weights.iterdir() if file.suffix in {".bin", ".pt", ".h5"}))
        why = f"the folder has no weights as safetensors (got {seen or 'none'})"
    else:
        return kind
    options = f", trust_remote_code={code}" if code else ""
    line = f"from transformers import {kind}; load = lambda: {kind}.from_pretrained({str(weights)!r}{options})"
    then = "" if command else " name model:load in its place"
    msg = f"{weights} cannot be loaded directly because {why}"
    raise UsageError(msg, hint=f"if you trust it, write model.py: {line}; then{then}", command=command)


def read_config(path: Path) -> dict[str, Any]:
    """Return a configuration that `save_pretrained` wrote; raise InputFileError if that fails."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_LARGEST_CONFIG + 1)
        if len(text) > _LARGEST_CONFIG:
            msg = f"larger than {_LARGEST_CONFIG} bytes"
            raise ValueError(msg)  # noqa: TRY301 - it is unreadable like the others
        config = parse_json(text)
    except (OSError, ValueError, RecursionError) as err:
        raise InputFileError(f"{path} cannot be read: {err}", hint="save the model again with save_pretrained") from err
    if not isinstance(config, dict):
        msg = f"{path} is not a configuration of a model (got {a_or_an(type(config).__name__)}, expected an object)"
        raise InputFileError(msg, hint="save the model again with save_pretrained")
    return config


def load_weights(weights: Path) -> Any:  # noqa: ANN401 - a torch.nn.Module, and transformers has no types
    """Return the model, which computes in FP32 whatever it was saved in; raises as `class_of_weights`."""
    kind = class_of_weights(weights)
    # Nothing is downloaded, and no code of the folder runs.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    model = getattr(transformers, kind).from_pretrained(weights, **options)
    if hasattr(model.config, "use_cache"):
        # A cache of earlier tokens is not an output that is compared.
        model.config.use_cache = False
    return model.float()
