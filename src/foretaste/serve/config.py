"""Settings of the service."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from foretaste._util.settings import Count, Range, Threads, check_settings
from foretaste.errors import SettingError

MIN_TOKEN = 16
"""Characters of a token: shorter ones can be found by trying."""

_NAME = re.compile(r"[\w.-]+", re.ASCII)
"""Of a host, as the header has it."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Settings of the service."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own (127.0.0.1, ::1, localhost) needs
    token_file."""

    port: Annotated[int, Range(at_least=0, at_most=65535)] = 8000
    """Port to listen on; 0 takes a free one."""

    token_file: Path | None = None
    """File with the token that requests must bring, as Authorization: Bearer TOKEN."""

    allowed_hosts: tuple[str, ...] = ()
    """Names, without ports, that requests may be sent to beside localhost, host and any address;
    others are refused with 421. With token_file any name will do unless some are given."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""

    workers: Threads = 1
    """Processes that answer; each has the runs in memory, and they share the cores."""

    events: str | None = None
    """File of SQLite (events.db), or URL of PostgreSQL (postgresql://user@host/database), that
    keeps the events that requests bring; none are taken unless given."""

    rules_file: Path | None = None
    """File of TOML with rules, conditions on items that requests name: in-stock = "stock > 0"."""

    items: Path | None = None
    """File with columns of items, such as their stock, for rules and max_per; those that the run
    has unless given. Both files are read again when they change."""

    max_body_bytes: Count = 1_048_576
    """Bytes of a request's body."""

    deadline_s: Annotated[float, Range(above=0, at_most=3600)] = 2.0
    """Seconds after which a request is answered with 504, and not worked on if that is still to
    begin."""

    queue_requests: Count = 256
    """Requests that may wait, of each worker; more are answered with 503."""

    drain_s: Annotated[int, Range(at_least=1, at_most=3600)] = 30
    """Seconds that requests under way may take after SIGTERM."""

    access_log: bool = True
    """Write a line of JSON to stderr for every request."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.token_file is None and not is_loopback(self.host):
            raise SettingError(
                f"host {self.host} can be reached from other machines, and nothing would keep "
                "strangers out; give --token-file FILE (token_file=... in Python), or listen on "
                "127.0.0.1 behind a proxy that does"
            )
        for name in self.allowed_hosts:
            if not _NAME.fullmatch(name):
                raise SettingError(
                    f"allowed_hosts has {name!r}; give names alone, such as shop.example.com: no "
                    "https://, port, path or *"
                )

    def token(self) -> bytes | None:
        """The token of ``token_file``; SettingError where it has none worth the name."""
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(
                f"token_file {self.token_file} cannot be read as ASCII text: {error}"
            ) from error
        if len(token) < MIN_TOKEN or not token.isprintable() or " " in token:
            raise SettingError(
                f"token_file {self.token_file} must hold one token of at least {MIN_TOKEN} "
                "characters, without spaces; make one: openssl rand -hex 32"
            )
        return token.encode()


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
