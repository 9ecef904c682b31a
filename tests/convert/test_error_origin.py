"""Where an error came from: the user's line, as a part of a sentence."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from paritygate.convert import error_origin
from paritygate.convert.error_origin import users_line


@pytest.mark.parametrize(
    ("line", "shown"),
    [("if 1 / 0 > 0.1:", "if 1 / 0 > 0.1"), ("y = [1][3:] + [1 / 0]", "y = [1][3:] + [1 / 0]")],
)
def test_the_users_line_is_shown_without_a_colon_at_its_end(tmp_path: Path, line: str, shown: str) -> None:
    path = tmp_path / "theirs.py"
    path.write_text(f"def run():\n    {line}\n        {'pass' if line.endswith(':') else ''}\n")
    spec = importlib.util.spec_from_file_location("theirs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    with pytest.raises(ZeroDivisionError) as caught:
        module.run()

    assert users_line(caught.value) == f" at {path}:2: {shown}"


@pytest.mark.parametrize(
    "place", ["convert/torch/exporters.py", "models/torch/loading.py", "validate/runners/torch.py"]
)
def test_a_line_of_this_package_is_never_shown_as_the_users(place: str) -> None:
    package = Path(error_origin.__file__).parents[1]
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", str(package / place), "exec"))  # noqa: S102 - a frame of that file
    err = caught.value
    assert err.__traceback__ is not None

    # The first frame is this test's.
    assert users_line(err.with_traceback(err.__traceback__.tb_next)) == ""
