"""What errors and notes say: a test lists what one must name, in order, and tests/messages.txt has
the wording around it. ``python -m tests.messages [FILES]`` runs the tests and stores it again.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import pytest

FILE = Path(__file__).with_suffix(".txt")
_STORES = "FORETASTE_STORE_MESSAGES"
_TEMPORARY = re.compile(
    rf"{re.escape(gettempdir())}/(?:pytest-of-[^/]+/pytest-\d+/(?:popen-gw\d+/)?[^/\s'\"]+|tmp\w+)/?"
)
# Values, which are no part of the wording: tests name those that count.
_VALUES = re.compile(
    r"(?<!\w)'[^'\n]*'(?!\w)"  # quoted
    r"|^[^\s:]*[./][^\s,]*(?=[,:] )"  # the file or folder at the beginning
    r"|(?<![\w-])[+-]?(?:0x[0-9a-f]+|\d[\d.,:e-]*\d|\d)(?!\w)(?: [KMG]iB\b)?"
    # a number, a time, an address or a size in memory
    r"|(?<!\w)[0-9a-f]{12,}(?!\w)"  # a digest
)
Named = tuple[object, ...]
_Error = TypeVar("_Error", bound=BaseException)
_INDENT = "    "
_running: list[pytest.Item] = []


@contextmanager
def raises(
    kind: type[_Error] | tuple[type[_Error], ...], *named: object
) -> Iterator[pytest.ExceptionInfo[_Error]]:
    """Expect an error whose message names `named`, in this order, in the stored wording."""
    with pytest.raises(kind) as caught:
        yield caught
    says(caught.value, *named)


def says(message: object, *named: object) -> None:
    """Check that a message names `named`, in this order, and that tests/messages.txt has the rest.

    A file, a line, a value, a setting or a command is named by its text, a value that differs from
    machine to machine by a compiled pattern. Folders of tests are left out of the message.
    """
    line = wording(str(message), *named)
    test = case_of(_running[-1].nodeid)
    _running[-1].user_properties.append(("message", line))
    if _STORES not in os.environ:
        known = stored().get(test, set()) | stored().get(_test_of(test), set())
        near = "".join(f"\nstored: {one}" for one in difflib.get_close_matches(line, known, 1, 0.3))
        assert line in known, (
            f"the wording is new:\nfound:  {line}{near}\n"
            f"if it is right, store it: python -m tests.messages {_file_of(test)}"
        )


def whole(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a whole message that has `pattern`, if another library words it."""
    return re.compile(f"(?s).*(?:{pattern}).*")


def case_of(test: str) -> str:
    """Name a test's case by pytest's whole id, which has no white space but blanks: they separate
    tests in the file, so ␣ stands for each."""
    return test.replace(" ", "␣")


def wording(message: str, *named: object) -> str:
    """Return the message on one line, with … for `named`, which stand in it in this order, and for
    other values."""
    message, pieces, start = _TEMPORARY.sub("", message), [], 0
    for one in named:
        found = _pattern(one).search(message, start)
        assert found, f"{message!r} does not name {one!r} after {message[:start]!r}"
        pieces.append(message[start : found.start()])
        start = found.end()
    text = _VALUES.sub("…", "…".join([*pieces, message[start:]]))
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _pattern(named: object) -> re.Pattern[str]:
    """Find whole words and numbers only: 4 does not stand in 42, nor in 4.5."""
    if isinstance(named, re.Pattern):
        return named
    text = _TEMPORARY.sub("", str(named))
    before = r"(?<![\w])(?<!\d[.,])" if re.match(r"\w", text) else ""
    behind = r"(?![\w])(?![.,]\d)" if re.search(r"\w$", text) else ""
    return re.compile(before + re.escape(text) + behind)


@cache
def stored() -> dict[str, set[str]]:
    """The wordings of tests/messages.txt by test, or by pytest's id of a case if cases of a test
    differ: below each wording stand its tests, and each further case without the test's name."""
    found, wording = defaultdict[str, set[str]](set), ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith(_INDENT):
            wording = line
            continue
        file, *tests = line.split()
        name = ""
        for test in tests:
            name = name if test.startswith("[") else _test_of(test)
            found[f"{file}::{name}{test.removeprefix(name)}"].add(wording)
    return found


def text_of(wordings: dict[str, set[str]]) -> str:
    """The text of tests/messages.txt: each wording once, in the order of the tests, so that another
    wording is one line of diff."""
    users = defaultdict[str, list[str]](list)
    for test, cases in groupby(sorted(wordings, key=lambda one: (_test_of(one), one)), _test_of):
        found = {case: wordings[case] for case in cases if wordings[case]}
        if len({*map(frozenset, found.values())}) == 1:
            found = {test: found.popitem()[1]}
        for case, lines in found.items():
            for line in lines:
                users[line].append(case)
    text = []
    for line, tests in sorted(users.items(), key=lambda one: (one[1], one[0])):
        text.append(line)
        for file, own in groupby(tests, key=_file_of):
            words = [file]
            for test, cases in groupby(own, key=_test_of):
                first, *more = cases
                words += [first.split("::", 1)[1], *(case.removeprefix(test) for case in more)]
            text.append(_INDENT + " ".join(words))
    return "".join(f"{line}\n" for line in text)


class Messages:
    """Follow a run of tests: collect what they checked, and compare it with the stored file."""

    def __init__(self) -> None:
        self._used = defaultdict[str, set[str]](set)
        self._skipped: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _running[:] = [item]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect in the process that started the tests: reports of workers reach it too."""
        test = case_of(report.nodeid)
        self._used[test].update(text for kind, text in report.user_properties if kind == "message")
        if report.skipped:
            self._skipped |= {test, _test_of(test)}

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Compare the files of which every test ran: a wording that none of them used goes."""
        config, asked = session.config, session.config.option
        if hasattr(config, "workerinput"):
            return
        names = any("::" in one for one in config.args)
        # Without its cache pytest has no option lf.
        chosen = asked.keyword or asked.markexpr or getattr(asked, "lf", False)
        is_part = bool(exitstatus or names or chosen)
        whole = set() if is_part else {_file_of(test) for test in self._used}
        old, used = stored(), defaultdict[str, set[str]](set)
        for test, lines in self._used.items():
            used[test] |= lines
            used[_test_of(test)] |= lines
        unused = {
            test: lines - used[test]
            for test, lines in old.items()
            if test not in self._skipped
            if _file_of(test) in whole or not (config.rootpath / _file_of(test)).exists()
        }
        if _STORES in os.environ:
            tests = old.keys() | self._used.keys()
            kept = {test: set() if test in unused else old.get(test, set()) for test in tests}
            new = {test: kept[test] | self._used[test] for test in tests}
            FILE.write_bytes(text_of(new).encode())
        elif lines := [f"{test}: {line}" for test in unused for line in unused[test]]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line("\nno test uses these wordings; run python -m tests.messages FILES")
            reporter.write_line("\n".join(lines))


def _test_of(case: str) -> str:
    return case.split("[")[0]


def _file_of(test: str) -> str:
    return test.split("::")[0]


if __name__ == "__main__":
    os.environ[_STORES] = "1"
    files = sys.argv[1:] or ["-n", "2", *sorted({*map(_file_of, stored())})]
    sys.exit(pytest.main(["-q", *files]))
