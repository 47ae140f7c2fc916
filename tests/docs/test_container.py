"""The recipes for containers are consistent with the clone; they are not built here."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from foretaste.serve.config import ServeConfig
from foretaste.serve.guard import OPEN_PATHS
from tests.cli.conftest import call
from tests.docs.pages import ROOT, page


@dataclass(frozen=True)
class Instruction:
    name: str
    words: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def instructions() -> list[Instruction]:
    """The instructions of the Dockerfile without comments and line breaks."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    return [Instruction(line.split()[0], line.split()[1:]) for line in joined.splitlines() if line]


def stages() -> list[list[Instruction]]:
    """The instructions before the first FROM, then each stage beginning with its FROM."""
    found: list[list[Instruction]] = [[]]
    for instruction in instructions():
        if instruction.name == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def let_in(path: str) -> bool:
    """Whether .dockerignore lets a path into the build; the last matching line decides."""
    verdict = True
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!")
        if pattern.startswith("**/"):
            fits = pattern.removeprefix("**/") in path.split("/")
        else:
            fits = pattern in ("*", path) or path.startswith(f"{pattern}/")
        verdict = line.startswith("!") if fits else verdict
    return verdict


def test_instructions_are_known() -> None:
    known = {"ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    known |= {"EXPOSE", "HEALTHCHECK"}
    assert {instruction.name for instruction in instructions()} <= known
    bases = [stage[0].text for stage in stages()[1:]]
    base = "${BASE_IMAGE} AS"
    assert bases == [f"{base} build", f"{base} command", "command AS serve", "command"]


def test_arguments_have_defaults_and_are_used_and_described() -> None:
    arguments = {
        (name, default)
        for instruction in instructions()
        if instruction.name == "ARG"
        for name, equals, default in [instruction.text.partition("=")]
        if equals
    }
    assert len(arguments) == len([found for found in instructions() if found.name == "ARG"])
    uses = " ".join(found.text for found in instructions() if found.name != "ARG")
    for name, _ in arguments:
        assert f"${{{name}" in uses
    assert {row[0] for row in page("install.md").rows("In a container")} == {
        name for name, _ in arguments
    }


def test_copied_files_exist_and_are_not_ignored() -> None:
    _, build, final, *_ = stages()
    copied = [source for found in build if found.name == "COPY" for source in found.words[:-1]]
    assert {"pyproject.toml", "constraints.txt", "src", "README.md", "LICENSE"} == set(copied)
    for source in copied:
        assert (ROOT / source).exists()
        assert let_in(source)
    assert not let_in("tests/conftest.py")
    assert not let_in("src/foretaste/__pycache__/x.pyc")
    assert [found.words for found in final if found.name == "COPY"] == [
        ["--from=build", "/opt/foretaste", "/opt/foretaste"]
    ]


def test_the_image_does_not_run_as_root() -> None:
    final = stages()[2]
    users = [found.text for found in final if found.name == "USER"]
    assert users
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    after = [found.name for found in final[final.index(Instruction("USER", [users[-1]])) + 1 :]]
    assert after == ["ENTRYPOINT", "CMD"]


def test_no_tools_for_development_are_installed() -> None:
    text = " ".join(found.text for found in instructions())
    assert "[dev]" not in text
    assert "--editable" not in text
    (extras,) = re.findall(r'"\.\[([a-z,]+)\]"', text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) == {"serve", "sql"} <= project["optional-dependencies"].keys()


def asked_of(arguments: Sequence[str]) -> tuple[list[str], ServeConfig]:
    """The runs that the command would serve, and the settings."""
    given: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "foretaste.serve.serve",
            lambda runs, config, announce: given.extend((runs, config)),
        )
        done = call(*arguments)
    assert done.status == 0, done.err
    return list(map(str, given[0])), given[1]


def test_the_service_of_the_image_has_the_packages_settings(tmp_path: Path) -> None:
    _, port, health, command = stages()[3]
    runs, config = asked_of(json.loads(command.text))
    assert runs == ["runs/current"]
    assert (config.host, str(config.port)) == ("0.0.0.0", port.text)
    (path,) = re.findall(r"'GET', '(\S+)'", health.text)
    assert path in OPEN_PATHS
    assert f"int(port[1]) if port else {port.text}," in health.text
    program, *words = json.loads(health.text.partition(" CMD ")[2])
    assert program == "python"
    assert [checked(words, tmp_path, port.text, status) for status in (200, 503)] == [0, 1]
    for given in ("--port\0%s", "--port=%s"):
        assert checked(words, tmp_path, port.text, 200, given) == 0


def test_the_image_starts_foretaste_or_a_shell(tmp_path: Path) -> None:
    entrypoint = json.loads(stages()[2][-2].text)
    for name in ("foretaste", "bash", "torchrun"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)

    def started(*words: str) -> str:
        return subprocess.run(
            [*entrypoint, *words],
            env={"PATH": f"{tmp_path}:/bin"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert started("--help") == "foretaste --help\n"
    assert started("train", "vae", "a file.csv") == "foretaste train vae a file.csv\n"
    assert started("bash") == "bash\n"
    assert started("/bin/bash", "-c", "echo $((1 + 1))") == "2\n"
    assert started("torchrun", "-m", "--", "foretaste") == "torchrun -m -- foretaste\n"


def checked(words: list[str], folder: Path, default: str, status: int, given: str = "") -> int:
    """The exit status of the check of a service that answers with a status, on the port that its
    command has as ``given``, or on the default one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(60)
        port, line = str(listener.getsockname()[1]), folder / "cmdline"
        line.write_text(
            "\0".join(("foretaste", "serve", "runs/current", given.replace("%s", port)))
        )
        code = words[-1].replace("/proc/1/cmdline", str(line))
        words = [*words[:-1], code if given else code.replace(default, port)]
        with subprocess.Popen([sys.executable, *words]) as process:
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 %d Any\r\ncontent-length: 0\r\n\r\n" % status)
            return process.wait(60)


def test_the_services_fit_the_image_and_each_other() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service, database = compose["services"]["serve"], compose["services"]["database"]
    assert service["build"]["target"] == stages()[3][0].words[-1]
    runs, config = asked_of(service["command"])
    assert runs == ["runs/current"]
    assert config.host == "0.0.0.0"
    assert service["ports"] == [f"127.0.0.1:{config.port}:{config.port}"]
    assert config.token_file == Path("/run/secrets") / service["secrets"][0]
    assert compose["secrets"].keys() == set(service["secrets"])
    url = urlsplit(config.events)
    user, name = database["environment"]["POSTGRES_USER"], url.path.removeprefix("/")
    assert (url.hostname, url.username, name) == ("database", user, user)
    assert service["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert {f"--username={user}", f"--dbname={name}"} < set(database["healthcheck"]["test"])
    secret = database["environment"]["POSTGRES_PASSWORD"]
    assert service["environment"] == {"PGPASSWORD": secret}
    named = {volume.partition(":")[0] for one in (service, database) for volume in one["volumes"]}
    assert compose["volumes"].keys() == named
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "user" not in service
    assert int(service["stop_grace_period"].removesuffix("s")) > config.drain_s


def test_the_devcontainer_runs_the_tests() -> None:
    config = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert config["postCreateCommand"] == "make test"
    assert re.search(r"^test:", (ROOT / "Makefile").read_text(), re.MULTILINE)
