"""Ways in which something reaches a job: code that reads it, and what is changed afterwards.

Each folder holds `a.txt` with 1, `b.txt` with 2, the folders `one` and `two` with `x.txt` of the same, and links.
"""

from __future__ import annotations

import importlib.machinery
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["IN_MEMORY", "OF_REUSED", "REUSED", "WAYS", "Way", "archive", "database", "furnish"]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way.

    Attributes:
        name: Which, in words.
        code: Sets `value`, `here` being the folder and `own` what the job makes for its parent.
        change: Changes what is read.
        files: More files of the folder, by their path.
        variables: Environment variables of the job, in which `HERE` is the folder.
        prepare: Makes what is not a file, just before it is read.
        is_short: Whether it is one of those that are tried every time.
        changes_nothing: Whether the value may be the same afterwards: then it is enough that nothing is kept.
    """

    name: str
    code: str
    change: Callable[[Path], None] = lambda here: edit(here / "a.txt")
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] = lambda _: None
    is_short: bool = False
    changes_nothing: bool = False


def furnish(here: Path, way: Way) -> None:
    """Make the folder of a way."""
    for name in ("one", "two", "own", "empty"):
        (here / name).mkdir(parents=True)
    for name, text in {"a.txt": "1", "b.txt": "2", "one/x.txt": "1", "two/x.txt": "2", **way.files}.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text.replace("HERE", str(here)), encoding="utf-8")
        if text.startswith("#!"):
            (here / name).chmod(0o755)
    (here / "to_a").symlink_to("a.txt")
    (here / "to_one").symlink_to("one")


def edit(path: Path, old: str = "1", new: str = "2") -> None:
    """Change a file, with the size and the time that it had."""
    found = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _edits(name: str, old: str = "1", new: str = "2") -> Callable[[Path], None]:
    return lambda here: edit(here / name, old, new)


def _leads(name: str, target: str) -> Callable[[Path], None]:
    def change(here: Path) -> None:
        (here / name).unlink()
        (here / name).symlink_to(target)

    return change


def _written_at(name: str) -> Callable[[Path], None]:
    return lambda here: os.utime(here / name, (1e9, 1e9))


def _becomes_folder(here: Path) -> None:
    (here / "b.txt").unlink()
    (here / "b.txt").mkdir()


def _compiled_from(source: str, mode: str) -> Callable[[Path], None]:
    """Put the bytecode of another source in the place of that of `theirs`."""

    def change(here: Path) -> None:
        import importlib.util
        import py_compile

        module = here / "site-packages/theirs.py"
        other = here / "other.py"
        other.write_text(source)
        os.utime(other, ns=(module.stat().st_atime_ns, module.stat().st_mtime_ns))
        place = Path(importlib.util.cache_from_source(str(module)))
        place.unlink(missing_ok=True)
        py_compile.compile(
            str(other), cfile=str(place), invalidation_mode=py_compile.PycInvalidationMode[mode], doraise=True
        )

    return change


def _writes(name: str, text: str) -> Callable[[Path], None]:
    def change(here: Path) -> None:
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text, encoding="utf-8")

    return change


def _without_bytecode(here: Path) -> None:
    shutil.rmtree(here / "site-packages/__pycache__")


def _nothing(_: Path) -> None:
    pass


_LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); name = os.fsencode(here / 'a.txt')\n"
IN_MEMORY = "/dev/shm/paritygate-test-of-ways"  # noqa: S108 - shared with whoever wants to
_READ_BELOW = "value = os.read(os.open('x.txt', 0, dir_fd=place), 1).decode()"
_BY_RULES = "libc.syscall(437, place, b'{name}', bytes(16) + bytes([{rules}]) + bytes(7), 24)"
_DATAGRAMS = "import socket; one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
_OURS = "sys.path.insert(0, str(here))\n"
_THEIRS = "sys.path.insert(0, str(here / 'site-packages'))\n"
_RUNS = f"{_THEIRS}import runs; value = runs.run(str(here))"
_RUN_OF = "import subprocess\ndef run(here): return subprocess.run({command}, capture_output=True, text=True).stdout"


def _short(name: str, code: str, **options: object) -> Way:
    return Way(name=name, code=code, is_short=True, **options)  # type: ignore[arg-type]


def _unknown(name: str, code: str) -> Way:
    return Way(name=name, code=code, change=_nothing, changes_nothing=True)


_COPIES = """
import os
def size_of(path):
    out, into = os.pipe()
    if not os.fork():
        os.write(into, str(os.path.getsize(path)).encode())
        os._exit(0)
    size = os.read(out, 9).decode()
    os.path.exists(path.parent / "another")
    return size
"""

WAYS: Sequence[Way] = (
    _short("a file", "value = open(here / 'a.txt').read()"),
    _short("a link that it made", "os.symlink(here / 'a.txt', own / 'l'); value = open(own / 'l').read()"),
    _short("another name that it made", "os.link(here / 'a.txt', own / 'l'); value = open(own / 'l').read()"),
    _short(
        "what it moved into its folder",
        "os.rename(here / 'a.txt', own / 'm'); value = open(own / 'm').read()",
        change=lambda here: (here / "a.txt").write_text("2"),
    ),
    _short("the folder above its own", "value = open(f'{own}/../a.txt').read()"),
    _short("the folder above the devices", "value = open(f'/dev/..{here}/a.txt').read()"),
    _short(
        "what it appends to and reads",
        "stream = open(here / 'log', 'a'); stream.close(); value = open(here / 'log').read()",
        files={"log": "1"},
        change=_edits("log"),
    ),
    _short(
        "a link in its folder that it leads elsewhere",
        """
link = own / 'l'
link.symlink_to(here / 'b.txt')
value = link.read_text()
link.unlink()
link.symlink_to(here / 'a.txt')
value += link.read_text()
""",
    ),
    _short(
        "what lies in a folder that it moved",
        "os.rename(here / 'one', own / 'm'); value = (own / 'm/x.txt').read_text()",
        change=lambda here: ((here / "one").mkdir(), (here / "one/x.txt").write_text("2")),
    ),
    _short(
        "a module of the user that keeps its time and size",
        "sys.path.insert(0, str(here)); import mine; value = mine.VALUE",
        files={"mine.py": "VALUE = 1"},
        change=_edits("mine.py"),
    ),
    _short(
        "bytecode that nobody checks",
        f"{_THEIRS}import theirs; value = theirs.VALUE",
        files={"site-packages/theirs.py": "VALUE = 1"},
        change=_compiled_from("VALUE = 2", "UNCHECKED_HASH"),
        changes_nothing=True,
    ),
    _short(
        "bytecode of another source",
        f"{_THEIRS}import theirs; value = theirs.VALUE",
        files={"site-packages/theirs.py": "VALUE = 1"},
        change=_compiled_from("VALUE = 2", "TIMESTAMP"),
    ),
    _short(
        "a program that a package runs",
        _RUNS,
        files={"site-packages/runs.py": _RUN_OF.format(command="[here + '/tool']"), "tool": "#!/bin/sh\necho 1\n"},
        change=_edits("tool"),
    ),
    _short(
        "datagrams",
        """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(('127.0.0.1', 0))
    os.write(1, b'')
    value = one.fileno() > 0
""",
        change=_nothing,
        changes_nothing=True,
    ),
    _short(
        "who connects",
        "import socket; one = socket.socket(); one.bind(('127.0.0.1', 0)); one.listen(); value = 1",
        change=_nothing,
        changes_nothing=True,
    ),
    _short(
        "shared memory",
        f"{_LIBC}number = libc.shmget(0x70617269, 64, 0o1600); value = number >= 0",
        change=_nothing,
        changes_nothing=True,
    ),
    _short(
        "what is kept in a folder that it makes where there is none",
        """
place = here / 'kept'
place.mkdir(exist_ok=True)
if not (place / 'x').exists():
    (place / 'x').write_text('1')
value = (place / 'x').read_text()
""",
        change=_edits("kept/x"),
    ),
    _short(
        "what is read before its Python begins",
        "value = sys.EARLY",
        files={"early/sitecustomize.py": "import sys; sys.EARLY = open('HERE/a.txt').read()"},
        variables={"PYTHONPATH": "HERE/early"},
    ),
    Way(
        name="the size of a file that is written anew",
        code="value = os.path.getsize(here / 'a.txt'); (here / 'a.txt').write_text('1')",
        change=_writes("a.txt", "12"),
        is_short=True,
    ),
    Way(
        name="what is absent, and then made",
        code="value = (here / 'c.txt').exists(); (here / 'c.txt').write_text('1')",
        change=_writes("b.txt", "1"),
    ),
    Way(
        name="whether a file is behind a link of its own that is led elsewhere",
        code="""
            os.symlink(here / 'one', own / 'link')
            os.path.isfile(own / 'link/x.txt')
            os.unlink(own / 'link')
            os.symlink(here / 'two', own / 'link')
            value = os.path.isfile(own / 'link/x.txt')
        """,
        change=lambda here: (here / "two/x.txt").unlink(),
        is_short=True,
    ),
    Way(
        name="a size that a copy of a package's process looks at",
        code=f"{_THEIRS}import copies; value = copies.size_of(here / 'a.txt')",
        change=_writes("a.txt", "12"),
        files={"site-packages/copies.py": _COPIES},
    ),
    Way(name="a file below where it stands", code="os.chdir(here); value = open('/proc/self/cwd/a.txt').read()"),
    Way(name="a file from the root", code="value = open(f'/proc/self/root{here}/a.txt').read()"),
    Way(
        name="a file below what is open",
        code="place = os.open(here, os.O_RDONLY); value = open(f'/proc/self/fd/{place}/a.txt').read()",
    ),
    Way(
        name="a place that is opened again",
        code="place = os.open(here / 'a.txt', os.O_PATH); value = open(f'/proc/self/fd/{place}').read()",
    ),
    Way(name="memory", code="import mmap; value = mmap.mmap(os.open(here / 'a.txt', 0), 1, prot=1)[:].decode()"),
    Way(
        name="sendfile",
        code="""
place = os.memfd_create('x')
os.sendfile(place, os.open(here / 'a.txt', 0), 0, 1)
value = os.pread(place, 1, 0).decode()
""",
    ),
    Way(
        name="copy_file_range",
        code="""
place = os.open(own / 'c', os.O_RDWR | os.O_CREAT)
os.copy_file_range(os.open(here / 'a.txt', 0), place, 1)
value = os.pread(place, 1, 0).decode()
""",
    ),
    Way(
        name="splice",
        code="""
reader, writer = os.pipe()
os.splice(os.open(here / 'a.txt', 0), writer, 1)
value = os.read(reader, 1).decode()
""",
    ),
    Way(
        name="native code",
        code=f"{_LIBC}place = libc.open(name, 0); value = os.read(place, 1).decode()",
    ),
    Way(
        name="a thread",
        code="""
import threading
found = []
thread = threading.Thread(target=lambda: found.append(open(here / 'a.txt').read()))
thread.start()
thread.join()
value = found[0]
""",
    ),
    Way(
        name="a process that a package forks",
        code=f"{_THEIRS}import forks; value = forks.run(here / 'a.txt')",
        files={
            "site-packages/forks.py": """
import os
def run(path):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, open(path, 'rb').read())
        os._exit(0)
    os.wait()
    return os.read(reader, 1).decode()
"""
        },
    ),
    Way(
        name="what a program reads that a package runs",
        code=_RUNS,
        files={"site-packages/runs.py": _RUN_OF.format(command="['cat', here + '/a.txt']")},
    ),
    Way(
        name="when what such a program looks at was written",
        code=_RUNS,
        files={"site-packages/runs.py": _RUN_OF.format(command="['find', here + '/a.txt', '-newer', here + '/b.txt']")},
        change=lambda here: os.utime(here / "a.txt", (4e9, 4e9)),
    ),
    Way(
        name="what runs a script",
        code=_RUNS,
        files={
            "site-packages/runs.py": _RUN_OF.format(command="[here + '/script']"),
            "script": "#!HERE/tool\n",
            "tool": "#!/bin/sh\necho 1\n",
        },
        change=_edits("tool"),
    ),
    Way(
        name="the folder that a link leads into",
        code="os.chdir(here / 'to_one'); value = open('x.txt').read()",
        change=_leads("to_one", "two"),
    ),
    Way(
        name="a link to a folder that is open",
        code=f"place = os.open(here / 'to_one', os.O_RDONLY); {_READ_BELOW}",
        change=_leads("to_one", "two"),
    ),
    Way(
        name="a link to a folder as a place",
        code=f"place = os.open(here / 'to_one', os.O_PATH); {_READ_BELOW}",
        change=_leads("to_one", "two"),
    ),
    Way(name="a link to a file", code="value = open(here / 'to_a').read()", change=_leads("to_a", "b.txt")),
    Way(name="a link on the way", code="value = open(here / 'to_one/x.txt').read()", change=_leads("to_one", "two")),
    Way(
        name="a link of its own to a link",
        code="os.symlink(here / 'to_a', own / 'l'); value = open(own / 'l').read()",
        change=_leads("to_a", "b.txt"),
    ),
    Way(name="where a link leads", code="value = os.readlink(here / 'to_a')", change=_leads("to_a", "./a.txt")),
    Way(
        name="names in a folder",
        code="value = sorted(os.listdir(here / 'empty'))",
        change=lambda here: (here / "empty/new").touch(),
    ),
    Way(
        name="names by a pattern",
        code="value = [path.name for path in sorted(here.glob('one/*.txt'))]",
        change=lambda here: (here / "one/new.txt").touch(),
    ),
    Way(
        name="what is below a folder",
        code="value = [names for _, _, names in os.walk(here / 'one')]",
        change=lambda here: (here / "one/new.txt").touch(),
    ),
    Way(
        name="what a name is",
        code="value = [entry.name for entry in os.scandir(here) if entry.is_dir()]",
        change=_becomes_folder,
    ),
    Way(
        name="a file that is not there",
        code="value = (here / 'new').exists()",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="a file that cannot be opened",
        code="""
try:
    value = open(here / 'new').read()
except OSError:
    value = None
""",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="a folder that cannot be entered",
        code="""
try:
    value = os.chdir(here / 'new')
except OSError:
    value = 1
""",
        change=lambda here: (here / "new").mkdir(),
    ),
    Way(
        name="a file that native code looks for by its name",
        code=f"{_LIBC}value = libc.lstat(os.fsencode(here / 'new'), ctypes.create_string_buffer(500))",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="a name that is there when it is removed",
        code="""
try:
    value = os.unlink(here / 'new')
except OSError:
    value = 1
""",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="a folder that is there when it is made",
        code="""
try:
    os.mkdir(here / 'new')
    os.rmdir(here / 'new')
    value = 1
except OSError:
    value = 2
""",
        change=lambda here: (here / "new").mkdir(),
    ),
    Way(
        name="a file that only one may make",
        code="""
try:
    os.close(os.open(here / 'new', os.O_CREAT | os.O_EXCL))
    os.unlink(here / 'new')
    value = 1
except OSError:
    value = 2
""",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="what it left behind the last time",
        code="""
with open(here / 'count', 'a+') as stream:
    stream.write('1')
    stream.seek(0)
    value = stream.read()
""",
        change=_nothing,
    ),
    Way(
        name="what it changes in its place",
        code="""
with open(here / 'a.txt', 'r+') as stream:
    value = stream.read()
    stream.seek(0)
    stream.write('9')
""",
        change=_nothing,
    ),
    Way(
        name="a size",
        code="value = (here / 'a.txt').stat().st_size",
        change=lambda here: (here / "a.txt").write_text("12"),
    ),
    Way(name="a time", code="value = os.stat(here / 'a.txt').st_mtime", change=_written_at("a.txt")),
    Way(
        name="the time of what is open",
        code="value = os.fstat(os.open(here / 'a.txt', 0)).st_mtime",
        change=_written_at("a.txt"),
    ),
    Way(
        name="the time of what may be a link",
        code="value = os.lstat(here / 'a.txt').st_mtime",
        change=_written_at("a.txt"),
    ),
    Way(
        name="the time of what is listed",
        code="value = [(entry.name, entry.stat().st_mtime) for entry in os.scandir(here / 'one')]",
        change=_written_at("one/x.txt"),
    ),
    Way(
        name="the newest folder",
        code="value = max((here / 'one', here / 'two'), key=os.path.getmtime).name",
        change=_written_at("two"),
    ),
    Way(
        name="the newest folder of those that are listed",
        code="value = [entry.stat().st_mtime for entry in os.scandir(here) if entry.name == 'one']",
        change=_written_at("one"),
    ),
    Way(
        name="the time of what lies below what is open",
        code="value = os.stat('a.txt', dir_fd=os.open(here, os.O_RDONLY)).st_mtime",
        change=_written_at("a.txt"),
    ),
    Way(
        name="a mode", code="value = os.stat(here / 'a.txt').st_mode", change=lambda here: (here / "a.txt").chmod(0o600)
    ),
    Way(
        name="an attribute",
        code="""
try:
    value = os.getxattr(here / 'a.txt', 'user.x').decode()
except OSError:
    value = None
""",
        change=lambda here: os.setxattr(here / "a.txt", "user.x", b"1"),
    ),
    Way(
        name="attributes",
        code="value = os.listxattr(os.open(here / 'a.txt', 0))",
        change=lambda here: os.setxattr(here / "a.txt", "user.x", b"1"),
    ),
    Way(
        name="a database",
        code="""
import sqlite3
value = list(sqlite3.connect(f'file:{here}/data.db?mode=ro', uri=True).execute('select * from t'))
""",
        change=lambda here: database(here, 2),
    ),
    Way(
        name="a module in an archive",
        code="sys.path.insert(0, str(here / 'all.zip')); import zipped; value = zipped.VALUE",
        change=lambda here: archive(here, 2),
    ),
    Way(
        name="a version",
        code=f"{_THEIRS}import importlib.metadata; value = importlib.metadata.version('theirs')",
        files={"site-packages/theirs-1.dist-info/METADATA": "Name: theirs\nVersion: 1\n"},
        change=_edits("site-packages/theirs-1.dist-info/METADATA"),
    ),
    Way(
        name="a file of paths",
        code="import site; site.addsitedir(str(here / 'place')); import found; value = found.VALUE",
        files={"place/x.pth": "HERE/mod1\n", "mod1/found.py": "VALUE = 1", "mod2/found.py": "VALUE = 2"},
        change=_edits("place/x.pth", "mod1", "mod2"),
    ),
    Way(
        name="a module in a folder that is searched before",
        code="sys.path[:0] = [str(here / 'one'), str(here)]; import mine; value = mine.VALUE",
        files={"mine.py": "VALUE = 1"},
        change=_writes("one/mine.py", "VALUE = 2"),
        is_short=True,
    ),
    Way(
        name="a package in the place of a module",
        code=f"{_OURS}import mine; value = mine.VALUE",
        files={"mine.py": "VALUE = 1"},
        change=_writes("mine/__init__.py", "VALUE = 2"),
        is_short=True,
    ),
    Way(
        name="a module of a package that is not there",
        code=f"{_OURS}import ours; value = ours.has_more()",
        files={
            "ours/__init__.py": """
def has_more():
    try:
        from ours import more
    except ImportError:
        return False
    return True
"""
        },
        change=_writes("ours/more.py", ""),
    ),
    Way(
        name="an empty folder that can be imported",
        code=f"{_OURS}import importlib.util; value = importlib.util.find_spec('extra') is not None",
        change=lambda here: (here / "extra").mkdir(),
        is_short=True,
    ),
    Way(
        name="compiled code in the place of a module",
        code=f"{_OURS}import importlib.util; value = importlib.util.find_spec('mine').origin",
        files={"mine.py": "VALUE = 1"},
        change=lambda here: (here / f"mine{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"1"),
    ),
    Way(
        name="bytecode that has no source",
        code=f"{_OURS}import importlib.util; value = importlib.util.find_spec('extra') is not None",
        change=_writes("extra.pyc", ""),
    ),
    Way(
        name="a module that a copy of the process searches for",
        code=f"{_OURS}{_THEIRS}import forks; value = forks.run()",
        files={
            "site-packages/forks.py": """
import importlib.util, os
def run():
    reader, writer = os.pipe()
    importlib.util.find_spec('absent')
    if not os.fork():
        os.write(writer, b'01'[importlib.util.find_spec("extra") is not None:][:1])
        os._exit(0)
    os.wait()
    return os.read(reader, 1).decode()
"""
        },
        change=_writes("extra.py", ""),
    ),
    Way(
        name="a module that only a finder is asked for",
        code=f"""
{_OURS}
import importlib.machinery
finder = importlib.machinery.FileFinder(str(here), (importlib.machinery.SourceFileLoader, ['.py']))
value = finder.find_spec('extra') is not None
""",
        change=_writes("extra.py", ""),
    ),
    Way(
        name="all modules of a folder",
        code=f"{_OURS}import mine, pkgutil; value = [each.name for each in pkgutil.iter_modules([str(here)])]",
        files={"mine.py": "VALUE = 1"},
        change=_writes("extra.py", ""),
    ),
    Way(
        name="an installed package beside the code of the user",
        code=f"{_OURS}import importlib.metadata; value = len(list(importlib.metadata.distributions(path=[str(here)])))",
        files={"theirs-1.dist-info/METADATA": "Name: theirs\nVersion: 1\n"},
        change=_writes("Others-1.DIST-INFO/METADATA", "Name: others\nVersion: 1\n"),
    ),
    Way(
        name="bytecode that is older than its source",
        code=f"{_THEIRS}import theirs; value = theirs.VALUE",
        files={"site-packages/theirs.py": "VALUE = 1"},
        # Python goes on with what it keeps, until that is gone.
        change=lambda here: (edit(here / "site-packages/theirs.py"), _without_bytecode(here)),
    ),
    Way(
        name="a package whose source is edited",
        code=f"{_THEIRS}import theirs; value = theirs.VALUE",
        files={"site-packages/theirs.py": "VALUE = 1"},
        change=lambda here: (here / "site-packages/theirs.py").write_text("VALUE = 22"),
    ),
    Way(
        name="a variable",
        code="value = os.environ.get('WAY_OF_TEST')",
        change=lambda _: os.environ.update(WAY_OF_TEST="1"),
    ),
    Way(name="all variables", code="value = dict(os.environ)", change=lambda _: os.environ.update(WAY_OF_TEST="2")),
    Way(
        name="the variables as the kernel has them",
        code="value = 'WAY_OF_TEST=3' in open('/proc/self/environ').read()",
        change=lambda _: os.environ.update(WAY_OF_TEST="3"),
    ),
    _unknown("a connection", "import socket; value = socket.socket().connect_ex(('127.0.0.1', 9))"),
    _unknown(
        "a datagram to somebody",
        f"{_DATAGRAMS}value = one.sendto(b'1', ('127.0.0.1', 9))",
    ),
    _unknown(
        "a message to somebody",
        f"{_DATAGRAMS}value = one.sendmsg([b'1'], [], 0, ('127.0.0.1', 9))",
    ),
    _unknown(
        "a socket of the kernel", "import socket; value = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) and 1"
    ),
    _unknown("a device", "open('/dev/ptmx').close(); value = 1"),
    Way(
        name="a pipe with a name",
        code="value = os.read(os.open(here / 'pipe', os.O_RDWR | os.O_NONBLOCK), 1).decode()",
        prepare=lambda here: _pipe(here, "1"),
        change=lambda here: _pipe(here, "2"),
    ),
    Way(
        name="a file in shared memory",
        code=f"value = open('{IN_MEMORY}').read()",
        files={IN_MEMORY: "1"},
        change=lambda _: edit(Path(IN_MEMORY)),
    ),
    _unknown("a queue of messages", f"{_LIBC}value = libc.mq_open(b'/paritygate-way', 0) < 0"),
    _unknown("io_uring", f"{_LIBC}value = libc.syscall(425, 1, ctypes.create_string_buffer(200)) != 0"),
    _unknown(
        "a handle of a file",
        f"{_LIBC}value = libc.name_to_handle_at(-100, name, ctypes.create_string_buffer(200), None, 0)",
    ),
    _unknown("what happens in a folder", f"{_LIBC}value = libc.inotify_init1(0) > 0"),
    _unknown("what another process has open", f"{_LIBC}value = libc.syscall(438, 0, 0, 0)"),
    _unknown("the memory of a process", f"{_LIBC}value = libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0)"),
    _unknown("whether a process runs", "os.kill(1, 0); value = 1"),
    _unknown("what another process is", "value = len(open('/proc/1/stat').read()) > 0"),
    _unknown("which processes there are", "value = len(os.listdir('/proc')) > 0"),
    Way(
        name="how a program sees another process",
        code=_RUNS,
        files={"site-packages/runs.py": _RUN_OF.format(command="['cat', '/proc/1/status']")},
        change=_nothing,
        changes_nothing=True,
    ),
    _unknown("how busy the machine is", "value = open('/proc/loadavg').read() and 1"),
    _unknown("how much memory is free", "value = open('/proc/meminfo').read() and 1"),
    _unknown("a view of its own", f"{_LIBC}value = libc.unshare(0x20000)"),
    _unknown("a call of a later kernel", f"{_LIBC}value = libc.syscall(499)"),
    _unknown("a key of the kernel", f"{_LIBC}value = libc.syscall(250, 0, -3, 0)"),
    _unknown("a program that the user's code runs", "import subprocess; value = subprocess.run(['true']).returncode"),
    _short(
        "a file by rules that refuse links",
        f"{_LIBC}place = os.open(here, os.O_RDONLY); value = os.read({_BY_RULES.format(name='a.txt', rules=0x0C)}, 1)",
    ),
    _short(
        "a link on the way by rules that refuse links",
        f"{_LIBC}place = os.open(here, os.O_RDONLY); value = {_BY_RULES.format(name='one/x.txt', rules=0x04)} > 0",
        change=lambda here: ((here / "one").rename(here / "other"), (here / "one").symlink_to("other")),
    ),
    Way(
        name="a file that is not there by rules that refuse links",
        code=f"{_LIBC}place = os.open(here, os.O_RDONLY); value = {_BY_RULES.format(name='new', rules=0x0C)} > 0",
        change=lambda here: (here / "new").touch(),
    ),
    _unknown(
        "a link by rules that refuse what lies elsewhere",
        f"{_LIBC}place = os.open(here, os.O_RDONLY); value = {_BY_RULES.format(name='to_one/x.txt', rules=0x08)} > 0",
    ),
    _short(
        "a name below a folder that is open, with the flag for what is open",
        f"{_LIBC}value = libc.fstatat(os.open(here, os.O_RDONLY), b'new', ctypes.create_string_buffer(500), 0x1000)",
        change=lambda here: (here / "new").touch(),
    ),
    Way(
        name="names in a folder that was opened for another reason",
        code="place = os.open(here / 'empty', os.O_RDONLY); value = sorted(os.listdir(place))",
        change=lambda here: (here / "empty/new").touch(),
    ),
    _unknown(
        "a file by other rules",
        f"{_LIBC}value = libc.syscall(437, os.open('/', 0), name, bytes(16) + b'\\x10' + bytes(7), 24) > 0",
    ),
)


def _pipe(here: Path, text: str) -> None:
    """Put a text into a pipe that is called by its name, and leave an end of it open."""
    place = here / "pipe"
    if not place.exists():
        os.mkfifo(place)
    os.write(os.open(place, os.O_RDWR | os.O_NONBLOCK), text.encode())


def database(here: Path, value: int) -> None:
    import sqlite3

    with sqlite3.connect(here / "data.db") as base:
        base.execute("create table if not exists t (x)")
        base.execute("delete from t")
        base.execute("insert into t values (?)", (value,))
    base.close()


def archive(here: Path, value: int) -> None:
    import zipfile

    with zipfile.ZipFile(here / "all.zip", "w") as written:
        written.writestr("zipped.py", f"VALUE = {value}")


# What brings nothing, and is to be reused.
REUSED: Mapping[str, str] = {
    "nothing": "value = 1",
    "a socket with an address": """
import socket
for family, address in ((socket.AF_INET6, '::1'), (socket.AF_INET, '127.0.0.1')):
    try:
        with socket.socket(family) as one:
            one.bind((address, 0))
    except OSError:
        pass
value = 1
""",
    "a socket that is only made": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(); value = 1",
    "two ends of one socket": """
import socket
one, other = socket.socketpair()
one.send(b'1')
one.sendmsg([b'2'])
value = other.recv(2).decode()
""",
    "a temporary folder": """
import tempfile
with tempfile.TemporaryDirectory() as place:
    Path(place, 'x').write_text('1')
    Path(place, 'y').mkdir()
    os.rename(f'{place}/x', f'{place}/y/x')
    value = Path(place, 'y/x').read_text()
""",
    "a temporary file that is left behind": """
import tempfile
number, place = tempfile.mkstemp()
os.write(number, b'1')
value = open(place).read()
""",
    "a link to a file in its folder": "os.symlink(here / 'a.txt', own / 'l'); value = open(own / 'l').read()",
    "another name for a file in its folder": "os.link(here / 'a.txt', own / 'l'); value = open(own / 'l').read()",
    "a copy with all that is said of the file": "import shutil; shutil.copy2(here / 'a.txt', own / 'c'); value = 1",
    "chance and processors": """
open('/dev/urandom', 'rb').read(1)
open('/dev/null').close()
open('/proc/cpuinfo').close()
open('/proc/self/status').close()
os.listdir('/sys/devices/system/cpu')
value = 1
""",
    "threads": """
import threading
threads = [threading.Thread(target=lambda: open(here / 'a.txt').read()) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
value = 1
""",
    "shared memory of its own": """
from multiprocessing import shared_memory
place = shared_memory.SharedMemory(create=True, size=8)
place.buf[0] = 1
value = place.buf[0]
place.close()
place.unlink()
""",
    "a file by rules that refuse links": f"""
{_LIBC}
place = os.open(here, os.O_RDONLY)
value = os.read({_BY_RULES.format(name="one/x.txt", rules=0x0C)}, 1).decode()
""",
    "a package that runs a program": _RUNS,
    "a module that was compiled before": f"{_THEIRS}import theirs; value = theirs.VALUE",
    "a module of the user": f"{_OURS}import mine; value = mine.VALUE",
    "a module of the user, and a version": f"""
{_OURS}
import importlib.metadata, mine
value = mine.VALUE, importlib.metadata.version('onnx')
""",
}
OF_REUSED: Mapping[str, str] = {
    "mine.py": "VALUE = 1",
    "site-packages/runs.py": _RUN_OF.format(command="['uname', '-m']"),
    "site-packages/theirs.py": "VALUE = 1",
}
