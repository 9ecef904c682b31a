"""Python code that runs in a process of its own, as a job does, and is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.listener import Listener
from paritygate.pipelines.process.file_access.seccomp_filter import watched

_BEGIN = """
    import json, os, sys
    from pathlib import Path
    from paritygate.pipelines.process.installed import compile_own_modules
    from paritygate.pipelines.process.file_access.python import read_in_python, watch_python
    compile_own_modules()
    watch_python(int(sys.argv[2]))
    here = Path(sys.argv[1])
"""
_END = """
    print(json.dumps(read_in_python()))
"""
_LIMIT_S = 600


def environment() -> dict[str, str]:
    """Return the variables with which a process finds what is tested."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def watch(command: list[str], own: list[Path]) -> tuple[Listener, str]:
    """Run a command to its end, and return who watched it and what it printed."""
    listener = Listener(own)
    command = [*command, str(listener.notes.childs_end)]
    with subprocess.Popen(
        watched(command, listener.childs_end.fileno()),
        pass_fds=listener.inherited,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        listener.start(process.pid)
        out, _ = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 0
    return listener, out


def seen_of(folder: Path, code: str, own: str = "own") -> FileAccesses:
    """Return what is seen of Python code, `here` being the folder, where `own` is what it makes for its parent."""
    program = folder.parent / f"{folder.name}.py"
    program.write_text("".join(map(textwrap.dedent, (_BEGIN, code, _END))), encoding="utf-8")
    listener, out = watch([sys.executable, str(program), str(folder)], [folder / own])
    listener.add_of_python(json.loads(out.splitlines()[-1]))
    return listener.close()
