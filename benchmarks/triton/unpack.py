"""Unpack a Triton server out of the wheel of nvidia-pytriton: `unpack.py WHEELS PLACE`, by the Python it is to run."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

_PARTS = ("pytriton/tritonserver/", "nvidia_pytriton.libs/")
_PROGRAMS = frozenset({"tritonserver", "triton_python_backend_stub"})
_STUB = "triton_python_backend_stub"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def unpack(wheels: Path, place: Path) -> None:
    """Unpack the server out of the one wheel of nvidia-pytriton in a folder, with the python backend of this Python.

    Raises:
        SystemExit: There is no such wheel, or it has no backend for this Python.
    """
    found = sorted(wheels.glob("nvidia_pytriton-*.whl"))
    if not found:
        sys.exit(f"{wheels} holds no wheel of nvidia-pytriton")
    with zipfile.ZipFile(found[-1]) as archive:
        for item in archive.infolist():
            if item.filename.startswith(_PARTS):
                path = Path(archive.extract(item, place))
                # What may be executed is not kept by zipfile.
                path.chmod(0o755 if path.name in _PROGRAMS else 0o644)
    server = place / _PARTS[0]
    stub = server / "python_backend_stubs" / _PYTHON / _STUB
    if not stub.is_file():
        sys.exit(f"{found[-1].name} has no python backend for Python {_PYTHON}")
    copy = server / "backends/python" / _STUB
    copy.write_bytes(stub.read_bytes())
    copy.chmod(0o755)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
