"""Named sets, from tiny archives in the formats of the real archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretaste.data import Dataset, PrepareConfig, open_or_prepare, prepare
from foretaste.data import movielens as named_sets
from foretaste.data.movielens import NAMED_SETS, named_set
from foretaste.data.request import PrepareRequest
from foretaste.errors import DatasetError, InputError, SettingError
from tests.data import movielens
from tests.data.file_server import FileServer, serving
from tests.messages import raises

NAMES = ["ml-100k", "ml-1m", "ml-20m", "ml-25m", "ml-32m"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server with the archive of every set."""
    archives = {name: movielens.archive(name) for name in NAMES}
    for name, content in archives.items():
        movielens.expect(monkeypatch, name, content)
    with serving({f"/sets/{name}.zip": content for name, content in archives.items()}) as server:
        monkeypatch.setenv("FORETASTE_MOVIELENS_URL", f"{server.url}/sets/")
        yield server


def cached(tmp_path: Path) -> list[str]:
    """Names of the files in the cache."""
    found = (tmp_path / "cache" / "foretaste").rglob("*")
    return sorted(path.name for path in found if path.is_file())


def unpack(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file, content in movielens.files(name).items():
        (folder / file).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_one_command_downloads_unpacks_and_prepares(
    mirror: FileServer, tmp_path: Path, name: str
) -> None:
    reports: list[str] = []
    dataset = prepare(name, config=PrepareConfig(), progress=reports.append)
    manifest = dataset.manifest
    assert manifest.protocol == "leave-one-out"
    assert manifest.filters == {"min_user_interactions": 20}
    assert manifest.num_users == movielens.NUM_USERS
    assert dataset.path.name.startswith(f"{name}-")
    test = dataset.heldout("test")
    users, items = dataset.users.ids(test.user_index), dataset.items.ids(test.target.item_index)
    assert items == [movielens.last_item(int(user)) for user in users]
    known = dict(enumerate(movielens.titles(name), start=1))
    assert dataset.items.titles() == [known[int(item)] for item in dataset.items.ids()]
    further = {"ml-100k": "release_date"}.get(name, "genres")
    assert dataset.items.table.column_names == ["id", "title", further]
    assert cached(tmp_path) == sorted(movielens.files(name))
    assert reports[0].startswith(f"download {name}.zip: 0.0 MB")
    assert reports[1:4] == [f"check {name}.zip", f"unpack {name}.zip", "checksum"]
    assert not (tmp_path / "outside.txt").exists()


def test_a_set_is_downloaded_once(mirror: FileServer) -> None:
    first = prepare("ml-1m")
    again = open_or_prepare(PrepareRequest.of("ml-1m"))
    other = open_or_prepare(PrepareRequest.of(Path("ml-1m"), protocol="held-out-users"))
    assert len(mirror.requests) == 1
    assert again.path == first.path
    assert other.path != first.path
    assert other.manifest.filters == {"min_user_interactions": 5, "min_rating": 4.0}


def test_other_filters_may_be_asked_for(mirror: FileServer) -> None:
    dataset = prepare("ml-1m", config=PrepareConfig(filters="none"))
    assert dataset.manifest.filters == {}
    assert movielens.LAZY_USER in dataset.users.ids()
    dataset = prepare("ml-1m", config=PrepareConfig(min_user_interactions=3))
    assert dataset.manifest.filters == {"min_user_interactions": 3}


def test_ml_20m_holds_out_as_many_users_as_the_reference() -> None:
    def heldout(name: str, **settings: object) -> int | None:
        config = PrepareConfig(**settings)  # type: ignore[arg-type]
        return NAMED_SETS[name].settings(config).num_heldout_users

    assert heldout("ml-20m", protocol="held-out-users") == 10_000
    assert heldout("ml-20m", protocol="held-out-users", num_heldout_users=7) == 7
    assert heldout("ml-20m") is None
    assert heldout("ml-1m", protocol="held-out-users") is None


@pytest.mark.parametrize("depth", ["", "ml-1m", "archive"])
def test_files_that_are_there_already_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: str
) -> None:
    folder = tmp_path / "given"
    if depth == "archive":
        folder.mkdir()
        (folder / "ml-1m.zip").write_bytes(movielens.archive("ml-1m"))
        movielens.expect(monkeypatch, "ml-1m", movielens.archive("ml-1m"))
    else:
        unpack("ml-1m", folder / depth)
    before = sorted(folder.rglob("*"))
    dataset = prepare(["ml-1m"], source_dir=folder)
    assert dataset.manifest.num_users == movielens.NUM_USERS
    assert dataset.items.has_column("title")
    assert sorted(folder.rglob("*")) == before
    assert cached(tmp_path) == (["movies.dat", "ratings.dat"] if depth == "archive" else [])


def test_given_files_may_come_without_titles(tmp_path: Path) -> None:
    folder = unpack("ml-100k", tmp_path / "given")
    (folder / "u.item").unlink()
    assert prepare("ml-100k", source_dir=folder).items.titles() is None


def test_given_titles_override_the_titles_of_the_set(mirror: FileServer, place: Path) -> None:
    items = place / "items.csv"
    items.write_text("id,title\n1,One\n")
    dataset = prepare("ml-1m", items=items)
    assert dataset.items.titles(dataset.items.lookup([1, 2])) == ["One", None]


def test_the_sets_own_folder_is_used_where_it_stands(place: Path) -> None:
    unpack("ml-20m", place / "ml-20m")
    assert prepare("ml-20m").path.name.startswith("ml-20m-")
    named = open_or_prepare(
        PrepareRequest.of(
            "ml-20m", config=PrepareConfig(protocol="held-out-users", num_heldout_users=2)
        )
    )
    assert named.manifest.num_users == movielens.NUM_USERS + 1


def test_the_folder_of_the_guide_to_vae_cf_is_the_folder_of_the_set(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder /data/ml-20m/extracted/ml-20m has all files of the archive."""
    raw = unpack("ml-20m", place / "ml-20m" / "extracted" / "ml-20m")
    (raw / "links.csv").write_text("movieId,imdbId,tmdbId\n1,2,3\n")
    assert prepare("ml-20m").manifest.num_items == movielens.NUM_ITEMS
    monkeypatch.chdir(raw)
    assert prepare("ml-20m", source_dir=place).manifest.num_items == movielens.NUM_ITEMS


def test_a_file_with_the_name_of_a_set_is_taken_in_its_place(
    mirror: FileServer, place: Path
) -> None:
    made = prepare("ml-1m", place / "ml-1m")
    assert isinstance(made, Dataset)
    assert open_or_prepare(PrepareRequest.of("ml-1m")).path == Path("ml-1m")
    assert len(mirror.requests) == 1
    (place / "ml-25m").write_text("a file")
    assert named_set("ml-25m") is None
    assert named_set("ml-25m", place) is NAMED_SETS["ml-25m"]


def test_an_archive_that_is_given_must_be_the_published_one(tmp_path: Path) -> None:
    archive = tmp_path / "ml-1m.zip"
    archive.write_bytes(movielens.archive("ml-1m"))
    with raises(InputError, "ml-1m.zip"):
        prepare("ml-1m", source_dir=tmp_path)
    assert archive.is_file()
    assert cached(tmp_path) == []


def test_a_folder_without_the_files_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with raises(InputError, absent, "ml-20m.zip", "ratings.csv", "--source-dir"):
        prepare("ml-20m", source_dir=absent)


@pytest.mark.parametrize("name", ["ml-10m", "ML-1M", "sets/ml-10m", ["ml-10m"]])
def test_a_name_that_no_set_has(name: str | Path | list[str], tmp_path: Path) -> None:
    with raises(InputError):
        prepare(name, tmp_path / "out")


@pytest.mark.parametrize("name", ["ml-10m.csv", "ml-*", ["ml-10m", "ml-1m"]])
def test_what_cannot_be_a_name_is_a_file_that_is_not_there(
    name: str | list[str], tmp_path: Path
) -> None:
    with raises(InputError):
        prepare(name, tmp_path / "out")


def test_settings_that_are_not_for_named_sets(tmp_path: Path) -> None:
    with raises(SettingError):
        prepare("ratings.csv", source_dir=tmp_path)
    with raises(SettingError, "delimiter"):
        prepare("ml-1m", config=PrepareConfig(delimiter=","))
    unpack("ml-1m", tmp_path / "given")
    dataset = prepare("ml-1m", tmp_path / "made", source_dir=tmp_path / "given")
    with raises(SettingError):
        open_or_prepare(PrepareRequest.of(dataset.path, source_dir=tmp_path / "given"))


def test_a_damaged_download_keeps_nothing_and_says_what_else_can_be_done(
    mirror: FileServer, tmp_path: Path
) -> None:
    mirror.files["/sets/ml-1m.zip"] = b"something else"
    with raises(InputError, "ml-1m.zip", "ml-1m.zip", "--source-dir", "FORETASTE_MOVIELENS_URL"):
        prepare("ml-1m")
    assert cached(tmp_path) == []


@pytest.mark.parametrize("address", ["ftp://example.org", "/data"])
def test_a_mirror_must_be_an_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("FORETASTE_MOVIELENS_URL", address)
    with raises(SettingError, "FORETASTE_MOVIELENS_URL", address):
        prepare("ml-1m")


def test_a_full_disk_while_unpacking_leaves_the_archive(
    mirror: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("shutil.copyfileobj", fail)
        with raises(InputError, "XDG_CACHE_HOME"):
            prepare("ml-1m")
    assert cached(tmp_path) == ["ml-1m.zip"]
    assert prepare("ml-1m").manifest.num_users == movielens.NUM_USERS
    assert len(mirror.requests) == 1
    assert cached(tmp_path) == ["movies.dat", "ratings.dat"]


def test_a_cache_folder_with_other_files_is_never_replaced(
    mirror: FileServer, tmp_path: Path
) -> None:
    folder = tmp_path / "cache" / "foretaste" / "ml-1m"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    with raises(DatasetError):
        prepare("ml-1m")
    assert cached(tmp_path) == ["thesis.txt"]
    assert not mirror.requests


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with raises(InputError, "file/foretaste"):
        prepare("ml-1m")


def test_nowhere_to_keep_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(kind: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(no_home))
    with raises(SettingError):
        prepare("ml-1m")


def test_a_set_that_another_process_has_unpacked_is_used(
    mirror: FileServer, tmp_path: Path
) -> None:
    folder = tmp_path / "cache" / "foretaste" / "ml-1m"

    def unpack_first(step: str) -> None:
        if step == "unpack ml-1m.zip":
            unpack("ml-1m", folder)

    assert prepare("ml-1m", progress=unpack_first).manifest.num_users == movielens.NUM_USERS


def test_a_set_that_another_process_unpacks_at_the_start_is_used(
    mirror: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = named_sets.check_output

    def unpack_first(folder: Path, overwrite: bool) -> None:
        if folder.name == "ml-1m" and not folder.exists():
            unpack("ml-1m", folder)
        check(folder, overwrite)

    monkeypatch.setattr(named_sets, "check_output", unpack_first)
    assert prepare("ml-1m").manifest.num_users == movielens.NUM_USERS
