"""Settings of the service."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from foretaste._util.files import read_small
from foretaste._util.settings import Count, Range, check_settings
from foretaste.errors import SettingError

MIN_TOKEN = 16
"""Least number of characters of a token; shorter ones can be guessed."""

_NAME = re.compile(r"[\w.-]+", re.ASCII)
"""Name of a host without a port."""


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Settings of the service."""

    host: str = "127.0.0.1"
    """Address of the service. Addresses other than this machine's own (127.0.0.1, ::1, localhost)
    need token_file."""

    port: Annotated[int, Range(at_least=0, at_most=65535)] = 8000
    """Port to listen on; 0 takes a free one."""

    token_file: Path | None = None
    """File with the token that requests must send, as Authorization: Bearer TOKEN."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names without ports that requests may be sent to, besides localhost, host and IP
    addresses. Others are refused with 421. With token_file, all names are allowed by default."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:N."""

    events: str | None = None
    """SQLite file (events.db) or PostgreSQL URL (postgresql://user@host/database) in which events
    are stored. Without it, requests with events are refused."""

    rules_file: Path | None = None
    """TOML file with rules, which are conditions on items: in-stock = "stock > 0". Requests name
    the rules."""

    items: str | Path | None = None
    """File with columns of items, such as stock, for rules and max_per. Default: the columns of
    the run. This file and rules_file are read again when they change. A database is read at the
    start and at POST /v1/reload."""

    max_body_bytes: Count = 1_048_576
    """Largest body of a request, in bytes."""

    deadline_s: Annotated[float, Range(above=0, at_most=3600)] = 2.0
    """Seconds after which a request is answered with 504. A request that still waits then is
    dropped."""

    queue_requests: Count = 256
    """Number of requests that may wait; further requests are answered with 503."""

    drain_s: Annotated[int, Range(at_least=1, at_most=3600)] = 30
    """Seconds that running requests may take after SIGTERM."""

    access_log: bool = True
    """Write a line of JSON to stderr for every request."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.items is not None:  # text, as `Path` folds the slashes of a URL
            object.__setattr__(self, "items", str(self.items))
        if self.token_file is None and not is_loopback(self.host):
            raise SettingError(
                f"host {self.host} can be reached from other machines, so requests need a token; "
                "give --token-file FILE (token_file=... in Python), or listen on 127.0.0.1 behind "
                "a proxy that checks who asks"
            )
        for name in self.allowed_hosts:
            if not _NAME.fullmatch(name):
                raise SettingError(
                    f"allowed_hosts has {name!r}; give host names such as shop.example.com, "
                    "without https://, port, path or *"
                )

    def token(self) -> bytes | None:
        """Return the token in ``token_file``; SettingError if the file has no long enough token."""
        if self.token_file is None:
            return None
        try:
            token = read_small(self.token_file).removeprefix(BOM_UTF8).decode("ascii").strip()
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
    """Return True for an address that only this machine can reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
