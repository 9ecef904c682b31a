"""Of a dump of faulthandler's, the frames nearest to the crash are shown."""

from __future__ import annotations

from paritygate.pipelines.process.crash_dump import innermost_frames

_OTHER = ["Thread 0x00007f01 (most recent call first):", 'File "threading.py", line 9 in wait']
_DEAD = [
    "Current thread 0x00007f02 (most recent call first):",
    *(f'File "frame_{at}.py", line {at} in call' for at in range(12)),
]
_END = ["Extension modules: numpy (total: 1)"]
_TITLE = "Fatal Python error: Segmentation fault"


def test_the_frames_are_those_of_the_thread_that_died() -> None:
    lines = ["loading", "almost", "terminate called", _TITLE, *_OTHER, *_DEAD, *_END]

    assert innermost_frames(lines) == ["almost", "terminate called", _TITLE, *_DEAD[1:5]]


def test_where_no_thread_is_the_current_one_the_first_is_shown() -> None:
    assert innermost_frames([_TITLE, *_OTHER, *_END]) == [_TITLE, _OTHER[1]]


def test_a_thread_without_python_leaves_the_title() -> None:
    lines = [_TITLE, "Current thread 0x00007f02 (most recent call first):", "<no Python frame>", *_OTHER]

    assert innermost_frames(lines) == [_TITLE]


def test_the_last_of_several_dumps_counts() -> None:
    assert innermost_frames([_TITLE, *_OTHER, "Fatal Python error: Aborted", *_DEAD])[-5:] == [
        "Fatal Python error: Aborted",
        *_DEAD[1:5],
    ]


def test_a_log_without_a_dump_has_none() -> None:
    assert innermost_frames(["Traceback (most recent call last):", "ValueError: 3"]) == []
