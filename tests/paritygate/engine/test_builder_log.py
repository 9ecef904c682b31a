"""What is kept of what the library behind engines says."""

from __future__ import annotations

import pytest

from paritygate.engine.builder_log import BuilderLog, make_logger
from paritygate.engine.library import open_library

_CUDA = "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at /_src/a.cpp:250 (35))"


def test_errors_and_warnings_are_kept_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    log = BuilderLog("TensorRT 10.16.1.11")
    lines = {"INTERNAL_ERROR": "first", "ERROR": "second", "WARNING": "third", "INFO": "fourth", "VERBOSE": "fifth"}
    for severity, message in lines.items():
        log.add(severity, message)
    assert (log.errors, log.warnings) == (["first", "second"], ["third"])
    assert capsys.readouterr().out.splitlines() == [
        "[TensorRT 10.16.1.11] INTERNAL_ERROR: first",
        "[TensorRT 10.16.1.11] ERROR: second",
        "[TensorRT 10.16.1.11] WARNING: third",
        "[TensorRT 10.16.1.11] INFO: fourth",
    ]


def test_the_reason_is_one_line_without_places_in_the_librarys_sources() -> None:
    log = BuilderLog("TensorRT")
    said = "Error Code 4: Internal Error (no solution. In executeReshape at /_src/m.cpp:340 In check at /_src/c.cpp:13)"
    for line in ("ModelImporter.cpp:140: While parsing node number 0 [Foo -> y]:", said, said, _CUDA):
        log.add("ERROR", line)
    assert log.reason() == "Error Code 4: Internal Error (no solution.)"


def test_a_driver_that_is_not_there_is_the_reason_only_where_there_is_no_other() -> None:
    log = BuilderLog("TensorRT")
    assert log.reason() == ""
    log.add("ERROR", _CUDA)
    assert "Cuda Runtime" in log.reason()


def test_warnings_are_counted_and_the_different_ones_shown() -> None:
    log = BuilderLog("TensorRT")
    assert log.warned() == ""
    log.add("WARNING", "ModelImporter.cpp:1071: Make sure input input_ids has Int64 binding.")
    assert log.warned() == ""
    for text in ("a.cpp:9: one", "a.cpp:9: one", "two", "three", "four"):
        log.add("WARNING", text)
    assert log.warned() == "5: one; two; three; and 1 more"


def test_a_long_line_is_cut() -> None:
    log = BuilderLog("TensorRT")
    log.add("ERROR", "x" * 1000)
    assert log.reason() == "x" * 400 + "..."


@pytest.mark.rtx
def test_a_process_has_one_logger_and_it_writes_into_the_latest_log() -> None:
    # The library keeps the first logger that it is given, as long as a builder is there.
    library = open_library("tensorrt-rtx")
    first, second = BuilderLog("first"), BuilderLog("second")
    builder = library.module.Builder(make_logger(library, first))
    other = library.module.Builder(make_logger(library, second))
    for each in (other, builder):
        network = each.create_network(0)
        assert each.build_serialized_network(network, each.create_builder_config()) is None
    assert first.errors == []
    assert len(second.errors) >= 2


@pytest.mark.rtx
def test_a_log_that_fails_does_not_end_the_process() -> None:
    class Failing(BuilderLog):
        def add(self, severity: str, message: str) -> None:
            raise RuntimeError(severity + message)

    library = open_library("tensorrt-rtx")
    builder = library.module.Builder(make_logger(library, Failing("failing")))
    assert builder.build_serialized_network(builder.create_network(0), builder.create_builder_config()) is None
