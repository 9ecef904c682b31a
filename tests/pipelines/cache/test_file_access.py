"""What a child reads is seen, whoever reads it: by the kernel, and by its Python for what the kernel cannot see."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.pipelines.cache.watched import seen_of

from paritygate.pipelines.process.file_access.listener import Listener

# Longer than a step of the clock that files have their times from.
_STEP_S = 0.02

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process reads")


def test_files_that_were_read_looked_for_and_listed_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "read.txt").write_text("1")
    (tmp_path / "sized.txt").write_text("123")
    (tmp_path / "folder").mkdir()

    found = seen_of(
        tmp_path,
        """
        (here / "read.txt").read_text()
        (here / "sized.txt").stat()
        (here / "absent.txt").exists()
        os.path.lexists(here / "absent_link")
        os.listdir(here / "folder")
        (here / "written.txt").write_text("2")
        (here / "written.txt").read_text()
        """,
    )

    assert found.why_unknown == ""
    assert f"{tmp_path}/read.txt" in found.files
    assert found.sizes[f"{tmp_path}/sized.txt"] == 3
    assert {f"{tmp_path}/absent.txt", f"{tmp_path}/absent_link"} <= found.absent
    assert f"{tmp_path}/folder" in found.folders
    # What it wrote itself is not an input of it.
    assert not any("written" in path for path in (*found.files, *found.absent))


def test_what_native_code_threads_and_other_programs_read_is_seen(tmp_path: Path) -> None:
    for name in ("mapped.bin", "thread.txt", "program.txt", "relative.txt", "descriptor.txt"):
        (tmp_path / name).write_text("12345678")

    found = seen_of(
        tmp_path,
        """
        import ctypes, subprocess, threading
        libc = ctypes.CDLL(None)
        libc.open(os.fsencode(here / "mapped.bin"), 0)
        thread = threading.Thread(target=lambda: (here / "thread.txt").read_text())
        thread.start()
        thread.join()
        subprocess.run(["cat", str(here / "program.txt")], check=True, stdout=subprocess.DEVNULL)
        os.chdir(here)
        open("relative.txt").close()
        folder = os.open(here, os.O_RDONLY)
        os.close(os.open("descriptor.txt", os.O_RDONLY, dir_fd=folder))
        """,
    )

    names = {path.removeprefix(f"{tmp_path}/") for path in found.files if path.startswith(f"{tmp_path}/")}
    assert names == {"mapped.bin", "thread.txt", "program.txt", "relative.txt", "descriptor.txt"}
    # A program may look at the times of files as well, as `make` does.
    assert found.why_unknown.startswith("its code starts another process")


@pytest.mark.parametrize(
    "start", ["os.spawnv(os.P_WAIT, '/bin/true', ['true'])", "os.waitpid(os.fork() or os._exit(0), 0)"]
)
def test_a_process_that_is_forked_is_said(tmp_path: Path, start: str) -> None:
    assert seen_of(tmp_path, start).why_unknown.startswith("its code starts another process")


def test_a_file_is_the_same_by_the_paths_that_a_process_has_to_it(tmp_path: Path) -> None:
    for name in ("cwd.txt", "folder.txt", "open.txt"):
        (tmp_path / name).write_text("12345678")

    found = seen_of(
        tmp_path,
        """
        os.chdir(here)
        open("/proc/self/../self/cwd/cwd.txt").close()
        folder = os.open(here, os.O_RDONLY)
        open(f"/proc/{os.getpid()}/fd/{folder}/folder.txt").close()
        Path(f"/dev/fd/{folder}/absent.txt").exists()
        os.listdir(f"/proc/self/fd/{folder}")
        number = os.open("open.txt", os.O_PATH)
        open(f"/dev/fd/{number}").close()
        os.path.exists("/dev/fd/77")
        for name in os.listdir("/proc/self/fd"):
            os.path.lexists(f"/proc/self/fd/{name}")
        reader, writer = os.pipe()
        os.close(writer)
        open(f"/proc/self/fd/{reader}", "rb").close()
        """,
    )

    assert {f"{tmp_path}/{name}" for name in ("cwd.txt", "folder.txt", "open.txt")} <= set(found.files)
    assert f"{tmp_path}/absent.txt" in found.absent
    assert str(tmp_path) in found.folders
    assert found.why_unknown == ""


def test_what_code_of_the_user_is_told_of_a_file_is_seen_with_its_mode(tmp_path: Path) -> None:
    for name in ("asked.txt", "allowed.txt"):
        (tmp_path / name).write_text("1")
        (tmp_path / name).chmod(0o640)

    found = seen_of(tmp_path, "os.stat(here / 'asked.txt'); os.access(here / 'allowed.txt', os.X_OK)")

    for name in ("asked.txt", "allowed.txt"):
        state = (tmp_path / name).stat()
        assert found.looked_at[f"{tmp_path}/{name}"] == (state.st_mtime_ns, state.st_mode), name


def test_variables_are_seen_and_what_only_libraries_go_through_is_not_taken_for_all(tmp_path: Path) -> None:
    one = seen_of(tmp_path, "os.environ.get('ONE_OF_MINE'); 'TWO_OF_MINE' in os.environ; os.getenv('THREE_OF_MINE')")
    all_of_them = seen_of(tmp_path, "dict(os.environ)")

    assert {"ONE_OF_MINE", "TWO_OF_MINE", "THREE_OF_MINE"} <= one.variables
    assert {"ONE_OF_MINE", "TWO_OF_MINE", "THREE_OF_MINE"} <= one.variables_of_user
    of_library = seen_of(tmp_path, "import onnxruntime, click; click.Context(click.Command('a')).get_help()")
    assert not of_library.variables_of_user & {"COLUMNS", "TERM", "PATH"}
    assert not one.reads_all_variables
    assert all_of_them.reads_all_variables


def test_a_network_connection_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.accept, daemon=True)
        thread.start()
        found = seen_of(
            tmp_path, f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).close()"
        )

    assert found.why_unknown == "it opened a network connection"


def test_another_process_that_is_asked_is_said_and_one_that_makes_up_unique_numbers_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("asked")
        server.listen()
        code = "import socket; os.chdir(here); socket.socket(socket.AF_UNIX).connect('asked')"
        assert seen_of(tmp_path, code).why_unknown == "it asked another process of this machine, at asked"

    unique = """
        import socket, uuid
        uuid.uuid1()
        for place in ("/run/uuidd/request", "/var/run/uuidd/request"):
            socket.socket(socket.AF_UNIX).connect_ex(place)
        """
    assert seen_of(tmp_path, unique).why_unknown == ""


def test_code_that_cuda_compiled_for_the_gpu_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    code = """
        os.path.exists(here / ".nv")
        os.makedirs(here / ".nv/ComputeCache")
        open(here / ".nv/ComputeCache/index", "a+").close()
        """

    first, again = seen_of(tmp_path, code), seen_of(tmp_path, code.replace("makedirs", "listdir"))

    for found in (first, again):
        seen = (*found.files, *found.folders, *found.absent, *found.sizes)
        assert not [path for path in seen if path.startswith(f"{tmp_path}/.nv")]


def test_other_files_that_lie_where_cuda_keeps_what_it_compiled_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_CACHE_PATH", str(tmp_path))
    (tmp_path / ".nv").mkdir()
    for name in ("weights.bin", ".nv/weights.bin"):
        (tmp_path / name).write_text("1")

    found = seen_of(tmp_path, "open(here / 'weights.bin').read(); open(here / '.nv/weights.bin').read()")

    assert {f"{tmp_path}/weights.bin", f"{tmp_path}/.nv/weights.bin"} <= set(found.files)


def test_a_socket_that_is_not_there_is_something_that_was_looked_for(tmp_path: Path) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX).connect_ex(str(here / 'control'))"

    found = seen_of(tmp_path, code)

    assert found.why_unknown == ""
    assert str(tmp_path / "control") in found.absent


_CONNECTS_WITHOUT_AN_END = """
    import ctypes, socket
    name = str(here / "a.sock").encode()
    address = (1).to_bytes(2, sys.byteorder) + name
    connected = ctypes.CDLL(None).connect(socket.socket(socket.AF_UNIX).fileno(), address + b"rest", len(address))
    """


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket(socket.AF_UNIX).connect(os.fsencode(here) + b'/\\xff.sock')",
        "import socket; os.chdir(here); socket.socket(socket.AF_UNIX).connect('/proc/self/cwd/a.sock')",
        "import socket; socket.socket(socket.AF_UNIX).connect(f'/proc/self/fd/{os.open(here, os.O_RDONLY)}/a.sock')",
        _CONNECTS_WITHOUT_AN_END,
    ],
    ids=["no UTF-8", "where the process is", "what the process has open", "no end"],
)
def test_a_socket_that_is_there_is_asked_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        for name in (b"a.sock", b"\xff.sock"):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()

        why = seen_of(tmp_path, code).why_unknown

    assert why.startswith("it asked another process of this machine, at ")


def test_a_process_that_cannot_be_watched_says_why(tmp_path: Path) -> None:
    listener = Listener([tmp_path])
    listener.childs_end.send(b"the kernel does not")
    listener.start(os.getpid())

    assert listener.close().why_unknown == "the kernel does not"


def test_a_folder_around_its_own_files_is_no_input(tmp_path: Path) -> None:
    found = seen_of(tmp_path, "(here / 'outer/own').mkdir(parents=True)", own="outer/own")

    assert found.why_unknown == ""
    assert not any("outer" in path for path in (*found.absent, *found.sizes))


def test_a_folder_that_is_opened_and_not_listed_counts_by_what_is_opened_below_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/read.txt").write_text("1")

    found = seen_of(
        tmp_path,
        """
        place = os.open(here / "folder", os.O_RDONLY | os.O_DIRECTORY)
        os.close(os.open("read.txt", os.O_RDONLY, dir_fd=place))
        """,
    )

    assert f"{tmp_path}/folder/read.txt" in found.files
    assert f"{tmp_path}/folder" not in {**found.folders, **found.modules_in}
    assert found.sizes[f"{tmp_path}/folder"] is None


def test_weights_beside_a_model_file_are_files_that_were_read(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), "weight")
    graph = onnx.helper.make_graph([], "none", [], [], [weight])
    onnx.save(
        onnx.helper.make_model(graph),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    time.sleep(_STEP_S)

    found = seen_of(tmp_path, "import onnx; onnx.load(here / 'model.onnx')")

    assert found.why_unknown == ""
    assert {f"{tmp_path}/model.onnx", f"{tmp_path}/weights.bin"} <= set(found.files)
    assert str(tmp_path) not in found.folders


@pytest.mark.children
def test_a_folder_that_only_imports_list_counts_by_its_modules(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")

    found = seen_of(tmp_path, "sys.path.insert(0, str(here)); import mine")
    listed = seen_of(tmp_path, "sys.path.insert(0, str(here)); import mine; os.listdir(here)")

    assert str(tmp_path) in found.modules_in
    assert str(tmp_path) not in found.folders
    assert str(tmp_path) in listed.folders


@pytest.mark.parametrize("unwanted", ["", "1"], ids=["bytecode is kept", "bytecode is not kept"])
def test_a_module_of_the_user_counts_by_its_source_of_which_no_bytecode_is_kept(
    tmp_path: Path, unwanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("VALUE = 1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", unwanted)
    code = "sys.path.insert(0, str(here)); import mine"

    for _ in range(2):
        found = seen_of(tmp_path, code)

        assert not (tmp_path / "__pycache__").exists()
        assert f"{tmp_path}/mine.py" in found.files
        assert not any("__pycache__" in path for path in (*found.files, *found.absent, *found.sizes, *found.folders))
        assert not any(path.startswith(str(tmp_path)) for path in found.bytecode)


def test_a_module_that_is_installed_counts_by_its_bytecode_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/theirs.py").write_text("VALUE = 1")
    code = "sys.path.insert(0, str(here / 'site-packages')); import theirs"

    for _ in range(2):
        # It is written by the first, and read by the second.
        found = seen_of(tmp_path, code)

        assert f"{tmp_path}/site-packages/theirs.py" in found.files
        (kept,) = (path for path in found.bytecode if path.startswith(str(tmp_path)))
        assert Path(kept).exists()
        assert not any("__pycache__" in path for path in (*found.files, *found.absent, *found.sizes, *found.folders))
        assert found.why_unknown == ""
