"""What a message names is checked by value and order, and its wording is stored."""

from __future__ import annotations

import re

import pytest

from tests.messages import FILE, case_of, stored, text_of, wording

TEXT = "raw.csv, line 42: expected 4 fields, found 3: '1,2,3' (rows.csv); give --columns"


def test_the_wording_is_what_stands_around_values() -> None:
    named = ("raw.csv", 42, 4, 3, "1,2,3", re.compile(r"\w+\.csv"))
    around = "…, line …: expected … fields, found …: … ("
    assert wording(TEXT, *named) == around + "…); give --columns"
    assert wording(TEXT) == around + "rows.csv); give --columns"
    assert wording("takes 3.0 GiB, and 310 MiB are free") == "takes …, and … are free"
    assert wording("a run's epochs is 0x1f at -2.5:\nno") == r"a run's epochs is … at …:\nno"


@pytest.mark.parametrize(
    "named", [(41,), ("aw.csv",), (3, 4), ("1,2",), (42, "raw.csv"), ("row",), ("line 4",)]
)
def test_a_wrong_value_fails_and_so_does_a_wrong_order(named: tuple[object, ...]) -> None:
    with pytest.raises(AssertionError, match="does not name"):
        wording(TEXT, *named)


def test_stored_wordings_are_written_as_they_are_read() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert text_of(stored()) == text


def test_cases_of_a_test_are_stored_apart_only_if_they_differ() -> None:
    found = {"a.py::test[x]": {"one"}, "a.py::test[y]": {"one"}, "a.py::test[none]": set[str]()}
    assert text_of(found) == "one\n    a.py test\n"
    assert text_of(found | {"a.py::test[z]": {"two"}}) == (
        "one\n    a.py test[x] [y]\ntwo\n    a.py test[z]\n"
    )


def test_each_case_has_a_name_of_its_own_without_white_space() -> None:
    cases = ["gmf-named0", "gmf-named1", "many words " * 9 + "0", "many words " * 9 + "1", ""]
    names = {case_of(f"a.py::test[{case}]") for case in cases}
    assert len(names) == len(cases)
    assert all(name.split() == [name] for name in names)
