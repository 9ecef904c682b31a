from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.errors import UsageError
from paritygate.pipelines.spec.names import check_alias, check_name


@pytest.mark.parametrize("name", ["klue-sts", "a", "7", "v1.2_b", "A" * 100])
def test_a_plain_name_is_allowed(name: str) -> None:
    assert check_name("model", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../a",
        "a\\b",
        "/a",
        "a..b",
        ".a",
        "-a",
        "a b",
        "a\n",
        "a\0",
        "é",
        "모델",
        "a:b",
        "A" * 101,
    ],
)
def test_a_name_that_is_no_safe_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"model name .* is not allowed \(1 to 100 of the characters A-Z a-z"
    ) as caught:
        check_name("model", name)
    assert "such as 'klue-sts'" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        check_name("alias", name)
    assert caught.value.hint == "choose another name for the alias, such as 'prod'"


@given(st.text(alphabet="aA0._-/\\ \n\0é~", max_size=6))
def test_whatever_is_allowed_is_one_visible_part_of_a_path(name: str) -> None:
    try:
        check_name("model", name)
    except UsageError:
        return
    assert PurePosixPath("root", name).parts == ("root", name)
    assert not name.startswith(("-", ".", "~"))
    assert name.isascii()
    assert name.isprintable()


@pytest.mark.parametrize("name", ["3", "0042"])
def test_an_alias_that_reads_like_a_version_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"alias name '{name}' is a number, which would be read as a version"):
        check_alias(name)


def test_an_alias_with_a_slash_is_refused() -> None:
    with pytest.raises(UsageError, match="alias name 'team/prod' is not allowed"):
        check_alias("team/prod")
