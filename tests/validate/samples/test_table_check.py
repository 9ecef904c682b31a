"""Tables whose columns, cells or encoding do not fit a model: found before a row is read, with the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate.errors import InputFileError, UsageError
from paritygate.signature import TensorSpec
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.table_check import check_table
from paritygate.validate.samples.table_columns import Column, ColumnKind, choices_of_numbers

_X = TensorSpec(name="x", dtype="float32", shape=("batch", 3))
_TEXT = TensorSpec(name="a", dtype="string", shape=("batch",))


def _source(folder: Path, text: str | bytes, **parts: object) -> SampleSource:
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "rows.csv").write_bytes(data)
    return SampleSource(text="rows.csv", folder=folder, **parts)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("encoding", "cell", "guess"),
    [
        ("cp949", "김치", "CP949"),
        ("cp1252", "Müller", "CP1252"),
        ("cp932", "ひらがな", "CP932"),
        ("utf-16", "plain", "UTF-16"),
        ("utf-16-le", "plain", "UTF-16LE"),
        ("utf-16-be", "plain", "UTF-16BE"),
    ],
)
def test_a_cell_in_another_encoding_is_named_with_the_command_that_converts(
    tmp_path: Path, encoding: str, cell: str, guess: str
) -> None:
    source = _source(tmp_path, f"a,b\n1,x\n2,{cell}\n".encode(encoding))

    with pytest.raises(InputFileError) as caught:
        list(open_samples(source)())

    line, seen = (1, "a") if guess.startswith("UTF") else (3, cell)
    assert f"line {line}: the cell {seen!r}" in str(caught.value)
    assert f"iconv -f {guess} -t UTF-8" in caught.value.hint


def test_a_decimal_comma_is_named_with_line_cell_and_the_number_meant(tmp_path: Path) -> None:
    source = _source(tmp_path, "a;b;c\n1;2;3\n1;2,5;3\n")

    with pytest.raises(InputFileError) as caught:
        check_table(source, [_X])

    assert "line 3: the cell of 'b' is '2,5'" in str(caught.value)
    assert "2.5" in str(caught.value)
    assert "decimal=','" in caught.value.hint


@pytest.mark.parametrize(
    ("cells", "allowed", "pandas"),
    [
        (("1,234.5", "2"), ["1234.5"], "thousands=','"),
        (("7.25", "-1,234,567"), ["-1234567"], "thousands=','"),
        (("1,234", "2,345.5"), ["2345.5"], "thousands=','"),
        (("1,234", "0,5"), ["0.5"], "decimal=','"),
        (("1,234", "2,345"), ["1234", "1.234"], "thousands=','"),
    ],
)
def test_thousands_are_told_from_decimals(
    tmp_path: Path, cells: tuple[str, ...], allowed: list[str], pandas: str
) -> None:
    source = _source(tmp_path, "a,b,c\n" + "".join(f'1,"{cell}",3\n' for cell in cells))

    with pytest.raises(InputFileError) as caught:
        check_table(source, [_X])

    said = str(caught.value)
    assert said.rpartition("such as ")[2].rstrip(")").split(" or ") == allowed
    assert pandas in caught.value.hint


@pytest.mark.parametrize("columns", [("a",), ("a", "b"), ("a", "b", "c", "d")])
def test_too_few_or_too_many_columns_are_named_before_their_dtype(tmp_path: Path, columns: tuple[str, ...]) -> None:
    source = _source(tmp_path, "id,a,b,c,d\nr1,1,2,3,4\n", columns={"x": columns})

    with pytest.raises(UsageError) as caught:
        check_table(source, [_X])

    assert "--cast" not in caught.value.hint
    _check_names_no_part(caught.value.hint)


def test_a_part_of_the_columns_is_no_example(tmp_path: Path) -> None:
    source = _source(tmp_path, "a,churned,b,c\n1,0,2,3\n4,1,5,6\n")

    with pytest.raises(UsageError) as caught:
        check_table(source, [_X])

    _check_names_no_part(caught.value.hint)


def _check_names_no_part(hint: str) -> None:
    """Check that a hint shows how to name columns, but none that the check itself chose."""
    named = hint.partition("--columns x=")[2].split(",")
    assert len(named) > 1
    assert not {*named} & {"id", "a", "b", "c", "d", "churned"}


def test_the_column_of_ids_is_no_input(tmp_path: Path) -> None:
    source = _source(tmp_path, "id,a,b\n1,2,3\n", columns={"x": ("id", "a", "b")})

    with pytest.raises(InputFileError) as caught:
        check_table(source, [_X])

    assert "names the rows" in str(caught.value)


def test_a_column_without_any_value_is_named(tmp_path: Path) -> None:
    source = _source(tmp_path, "a,b,c\n1,,3\n1,,4\n", columns={"x": ("a", "b", "c")})

    with pytest.raises(InputFileError) as caught:
        check_table(source, [_X])

    assert "every cell of 'b' is empty" in str(caught.value)


def test_text_with_a_comma_stays_text_for_a_model_that_takes_text(tmp_path: Path) -> None:
    source = _source(tmp_path, 'a,b\n"1,2",1\n"3,4",2\n')

    check_table(source, [_TEXT])

    assert next(open_samples(source)()).inputs["a"].tolist() == ["1,2", "3,4"]


def test_columns_without_rows_are_wrong_usage_as_an_empty_file_is(tmp_path: Path) -> None:
    for text in ("a,b\n", ""):
        with pytest.raises(InputFileError):
            list(open_samples(_source(tmp_path, text))())


@pytest.mark.parametrize(
    ("columns", "seen", "error"),
    [
        ({"z": ("p", "q", "r")}, "'z'", UsageError),
        ({"x": ("p", "q", "rr")}, "'rr'", InputFileError),
        ({"x": ("p", "q", "name")}, "line 2", InputFileError),
        ({"x": ("name",)}, "line 2", InputFileError),
    ],
)
def test_columns_that_cannot_be_the_input_are_refused(
    tmp_path: Path, columns: dict[str, tuple[str, ...]], seen: str, error: type[Exception]
) -> None:
    source = _source(tmp_path, "p,q,r,name\n1,2,3,Ann\n", columns=columns)

    with pytest.raises(error, match=seen):
        check_table(source, [_X])


def test_what_numbers_or_answers_a_row_is_proposed_last(tmp_path: Path) -> None:
    source = _source(tmp_path, "customer_id,p,q,r,name,label\n7,1,2,3,Ann,0\n")

    with pytest.raises(UsageError) as caught:
        check_table(source, [_X])

    assert caught.value.hint.endswith("--columns x=p,q,r")
    names = ("id", "rowNo", "row_no", "Unnamed: 0", "userId", "p", "paid", "target")
    likely, *_ = choices_of_numbers(Column(name=name, kind=ColumnKind.NUMBER) for name in names)
    assert likely == ["rowNo", "p", "paid"]
