"""The request for a job: the part of its key that is known before it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paritygate.files import digest_of_json
from paritygate.machine import available_processors, host_facts
from paritygate.pipelines.cache.states import RUN, is_of_shell
from paritygate.pipelines.process.child import environment_of_child

# The longest value to show, and the text for none.
_LONGEST = 60
_SHOWN_OF_NOTHING = "nothing"
# How the names of arguments begin, and what the user calls that: the longest beginnings first.
_CALLED = {
    "is_non_finite_declared": "non_finite",
    "probes.names": "probes",
    "probes.": "",
    "rules.is_non_finite_declared": "non_finite",
    "rules.passes": "repeat",
    "rules_digest": "a rule of the spec",
    "rules.": "",
    "samples.folder": "the folder of the samples",
    "samples.text": "samples.source",
    "source.folder": "the folder of the model",
    "source.kind": "the kind of the model",
    "source.text": "model.source",
    "source.": "model.",
    "time_limit_s": "--time-limit",
}
# Other arguments follow from the jobs before, and a user does not know them.
_OF_EARLIER_JOBS = frozenset({"is_fit_known", "ties"})
# These change between shells, sessions, containers, calls of make and CI jobs. A read by Python code is recorded. A
# read by compiled code is not, so all other variables count.
_OF_THE_MOMENT = (
    "ACTIONS_", "AGENT_", "BUILDKITE_", "BUILD_", "CIRCLE_", "CI_", "DBUS_", "GITHUB_", "GITLAB_", "GPG_", "JENKINS_",
    "JOURNAL_", "KUBERNETES_", "LESS", "LS_", "MAKEFLAGS", "MAKELEVEL", "MAKE_TERM", "MFLAGS", "PARITYGATE_CACHE",
    "PIP_", "PYTEST_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "RUNNER_", "SSH_", "SUDO_", "SYSTEMD_", "TERM_",
    "TMUX", "TRAVIS_", "UV_", "VIRTUAL_ENV", "VSCODE_", "XDG_",
)  # fmt: skip
_NAMED_OF_THE_MOMENT = frozenset({"CI", "DISPLAY", "HOSTNAME", "WAYLAND_DISPLAY", "XAUTHORITY"})


def request_of(name: str, args: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return the request for a job as JSON data, the same for every run folder, whose path is `@run@` in it."""
    facts = host_facts()
    variables = environment_of_child()
    return {
        "job": name,
        "args": unplaced(dict(args), run),
        "here": os.getcwd(),  # noqa: PTH109 - as the child has it
        "machine": {
            "system": facts["platform"],
            "python": facts["python"],
            "cpu": facts["cpu"],
            "gpu": facts["gpu"],
            "cores": available_processors(),
        },
        "process": _inherited(),
        "variables": {
            name: digest_of_json(value)
            for name, value in sorted(variables.items())
            if not (is_of_shell(name) or name in _NAMED_OF_THE_MOMENT or name.startswith(_OF_THE_MOMENT))
        },
    }


def _inherited() -> dict[str, Any]:
    """Return what a process inherits from its parent, besides variables."""
    try:
        import resource
    except ModuleNotFoundError:
        return {}
    limits = {
        name.lower(): list(resource.getrlimit(getattr(resource, name))) for name in dir(resource) if _is_limit(name)
    }
    status = Path("/proc/self/status")
    text = status.read_text(encoding="utf-8") if status.exists() else ""
    # A call could read it only by setting it, which other threads would see.
    umask = next((line.split()[1] for line in text.splitlines() if line.startswith("Umask:")), None)
    return {
        **limits,
        "groups": sorted(os.getgroups()),
        "nice": os.nice(0),
        "umask": umask,
        "user": [os.geteuid(), os.getegid()],
    }


def _is_limit(name: str) -> bool:
    # That is another name for the number of files.
    return name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"


def difference_of_requests(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first change between two requests; empty for none."""
    for path, old, new in _differences(before, now, ()):
        if path[:1] == ("args",) and path[1] in _OF_EARLIER_JOBS:
            continue
        if path[0] == "variables":
            return f"the environment variable {path[1]} changed"
        named = path[1:] if path[0] in {"args", "machine", "process"} else path
        # A resolved spec has the original spec in it.
        name = _called(".".join(named[2:] if named[:2] == ("spec", "spec") else named).removeprefix("job."))
        if path[0] == "here":
            name = "the folder that the command is called in"
        words = [_SHOWN_OF_NOTHING if value is None else json.dumps(value) for value in (old, new)]
        from_to = "" if any(len(word) > _LONGEST for word in words) else f" ({' -> '.join(words)})"
        return f"{name} changed{from_to}"
    return ""


def _called(name: str) -> str:
    return next((f"{own}{name[len(begin) :]}" for begin, own in _CALLED.items() if name.startswith(begin)), name)


def _differences(before: Any, now: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:  # noqa: ANN401 - JSON data
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*now, *before)):
            yield from _differences(before.get(name), now.get(name), (*path, name))
    elif before != now:
        yield path, before, now


def unplaced(data: Any, run: Path) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data with `@run@` for the run folder, in all texts."""
    return _replaced(data, str(run), RUN)


def placed(data: Any, run: Path) -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data with the run folder for `@run@`, in all texts."""
    return _replaced(data, RUN, str(run))


def _replaced(data: Any, old: str, new: str) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(data, str):
        return data.replace(old, new)
    if isinstance(data, Mapping):
        return {_replaced(key, old, new): _replaced(value, old, new) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_replaced(item, old, new) for item in data]
    return data
