"""Do a job of no run in a child process, whose folder goes unless its log is wanted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from paritygate.codec import from_data
from paritygate.errors import ParitygateError
from paritygate.files import make_temporary_folder
from paritygate.pipelines.process.child import ChildJob, Progress, run_child
from paritygate.pipelines.process.child_result import reading_result

_Result = TypeVar("_Result")


def result_of_lone_child(kind: type[_Result], job_in: Callable[[Path], ChildJob], progress: Progress) -> _Result:
    """Return the result, of a class that the codec reads, of the job that `job_in` makes for a folder.

    Raises:
        ParitygateError: The job's error, or its crash error, which names the log.
    """
    place = make_temporary_folder("job")
    is_log_wanted = False
    try:
        job = job_in(place)
        data = run_child(job, progress)
        with reading_result(job):
            return from_data(kind, data)
    except ParitygateError as err:
        # After a crash, the message names the log.
        is_log_wanted = str(place) in str(err)
        raise
    finally:
        if not is_log_wanted:
            shutil.rmtree(place, ignore_errors=True)
