"""A digest is remembered where a change shows in the times of a file, and nowhere else."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paritygate.pipelines.cache import memory as module
from paritygate.pipelines.cache.memory import OF_SOURCE, DigestCache
from paritygate.pipelines.cache.request import request_of
from paritygate.pipelines.cache.states import Dependencies, first_difference

# Longer than a step of the clock of this file system.
_STEP_NS, _SETTLED_S = 20_000_000, 0.05
_LINE = "36 35 {numbers} / {place} rw,noatime - {kind} {source} {options}\n"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Path]:
    """Return what says by which file system a file is there, and returns the file."""

    def mount(kind: str, source: str, options: str) -> Path:
        file = tmp_path / "file"
        file.write_text("1")
        device = file.stat().st_dev
        numbers = f"{os.major(device)}:{os.minor(device)}"
        table = tmp_path / "mountinfo"
        table.write_text(_LINE.format(numbers=numbers, place=tmp_path, kind=kind, source=source, options=options))
        monkeypatch.setattr(module, "_MOUNTS", table)
        return file

    return mount


def _is_remembered(path: Path) -> bool:
    """Return whether other content with all that is said of it kept has the digest of before."""
    memory = DigestCache(path.with_suffix(".digests"))
    found = path.stat()
    before = memory.digest(str(path), found)
    path.write_text("2")
    return memory.digest(str(path), found) == before


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("ext4", "/dev/sda1", "rw"),
        ("xfs", "/dev/sda1", "rw,noatime"),
        ("overlay", "overlay", "rw"),
        ("nfs4", "a:/b", "rw"),
    ],
)
def test_what_the_kernel_keeps_times_of_is_remembered(
    mounted: Callable[[str, str, str], Path], monkeypatch: pytest.MonkeyPatch, kind: str, source: str, options: str
) -> None:
    # FAT has steps of two seconds, and nobody is to wait for long.
    assert 2 * 10**9 < module._TIME_STEP_NS < 3 * 10**9
    monkeypatch.setattr(module, "_TIME_STEP_NS", _STEP_NS)
    file = mounted(kind, source, options)
    time.sleep(_SETTLED_S)

    assert _is_remembered(file)


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("squashfs", "/dev/loop0", "ro"),
        ("ext4", "/dev/loop0", "rw"),
        ("ext4", "/dev/sda1", "ro"),
        ("iso9660", "/dev/sr0", "ro"),
        ("fuse.squashfuse", "squashfuse", "rw"),
        ("another", "another", "rw"),
    ],
)
def test_what_an_image_says_of_its_files_is_not_believed(
    mounted: Callable[[str, str, str], Path], kind: str, source: str, options: str
) -> None:
    assert not _is_remembered(mounted(kind, source, options))


def test_another_image_in_the_same_place_is_seen(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    digests = []
    for text in ("1", "2"):
        _mount(_image(tmp_path, text), place)
        try:
            memory = DigestCache(tmp_path / "digests.json")
            digests.append(((place / "file").stat(), memory.digest(str(place / "file"), (place / "file").stat())))
            memory.save()
        finally:
            subprocess.run(["umount", str(place)], check=True)

    (one, first), (other, second) = digests
    assert (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (
        (other.st_ino, other.st_size, other.st_mtime_ns, other.st_ctime_ns)
    )
    assert first != second


def _image(folder: Path, text: str) -> Path:
    """Make an image of a file system; all but the text is the same in each."""
    if shutil.which("mke2fs") is None or shutil.which("debugfs") is None:
        pytest.skip("images are made by mke2fs and debugfs")
    content, image = folder / "content", folder / f"image{text}"
    content.mkdir(exist_ok=True)
    (content / "file").write_text(text)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(content), str(image), "1M"], check=True)
    times = "".join(f"set_inode_field /file {name} 1000000000\n" for name in ("mtime", "ctime", "atime", "crtime"))
    for name in ("mtime_extra", "ctime_extra"):
        times += f"set_inode_field /file {name} 0\n"
    subprocess.run(["debugfs", "-w", "-f", "-", str(image)], input=times, text=True, check=True, capture_output=True)
    return image


def _mount(image: Path, place: Path) -> None:
    done = subprocess.run(
        ["mount", "-o", "loop,ro", str(image), str(place)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no image can be mounted here: {done.stderr.strip()}")


def test_variables_that_change_no_result_are_not_asked_and_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked = ("CI", "HOSTNAME", "KUBERNETES_PORT", "NO_COLOR", "PYTHONDONTWRITEBYTECODE", "TERM", "VIRTUAL_ENV")
    asked = ("CUDA_VISIBLE_DEVICES", "HOSTNAMES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "PYTHONPATH", "TZ")
    before = request_of("job", {}, tmp_path)["variables"]
    for name in (*unasked, *asked):
        monkeypatch.setenv(name, "of-test")

    now = request_of("job", {}, tmp_path)["variables"]

    assert {name for name, value in now.items() if before.get(name) != value} == set(asked)


@pytest.mark.parametrize("is_of_source", [True, False])
def test_bytecode_stands_for_its_source_only_where_python_makes_it_of_that(
    tmp_path: Path, *, is_of_source: bool
) -> None:
    source, other = tmp_path / "theirs.py", tmp_path / "other.py"
    source.write_text("VALUE = -0.0")
    other.write_text("VALUE = -0.0" if is_of_source else "VALUE = 0.00")
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    kept = importlib.util.cache_from_source(str(source))
    read, memory = Dependencies(bytecode={kept: OF_SOURCE}), DigestCache(tmp_path / "digests.json")
    assert (memory.bytecode(kept), first_difference(read, tmp_path / "run", memory, {})) == (OF_SOURCE, "")

    py_compile.compile(str(other), cfile=kept, doraise=True)

    assert memory.bytecode(kept) != OF_SOURCE
    assert bool(first_difference(read, tmp_path / "run", memory, {})) != is_of_source


def test_no_python_path_and_one_without_text_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    before = request_of("job", {}, tmp_path)
    monkeypatch.delenv("PYTHONPATH")

    assert request_of("job", {}, tmp_path) == before


def test_a_source_counts_with_its_bytecode(tmp_path: Path) -> None:
    source = tmp_path / "theirs.py"
    source.write_text("VALUE = 1")
    kept = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(source), cfile=kept, doraise=True)
    read = Dependencies(bytecode={kept: DigestCache(tmp_path / "digests.json").bytecode(kept)})
    written = source.stat()
    assert first_difference(read, tmp_path / "run", DigestCache(tmp_path / "digests.json"), {}) == ""

    # Python sees no change of this kind, and who reads the source does.
    source.write_text("VALUE = 2")
    os.utime(source, ns=(written.st_atime_ns, written.st_mtime_ns))

    found = first_difference(read, tmp_path / "run", DigestCache(tmp_path / "digests.json"), {})
    assert found.endswith("theirs.py changed")


def test_what_a_process_takes_over_from_its_parent_is_asked_too(tmp_path: Path) -> None:
    import resource

    before = request_of("job", {}, tmp_path)
    was, (soft, hard) = os.umask(0o077), resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        now = request_of("job", {}, tmp_path)
    finally:
        os.umask(was)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    changed = {name for name, value in now["process"].items() if before["process"][name] != value}
    assert changed == {"umask", "rlimit_nofile"}
    assert request_of("job", {}, tmp_path) == before
