"""How a SuperLink is reached."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from plures.core.errors import InvalidConfig, PluresError

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on, and where their own machine reaches them."""


class SuperLinkError(PluresError):
    """The SuperLink refuses, or is not to be reached."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """An address, and what makes it safe; without, it must be on this machine."""

    address: str
    """HOST:PORT."""
    ca: Path | None = None
    """The certificate of whoever has signed the SuperLink's."""
    secret: bytes | None = None
    """Of the SuperLink's --superexec-auth-secret-file: whoever has it may take runs."""

    def __post_init__(self) -> None:
        host, colon, port = self.address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidConfig(f"'{self.address}' is no address: give HOST:PORT, such as 127.0.0.1:8500.")
        if self.ca is None and not is_loopback(host):
            raise InvalidConfig(
                f"{host} is not this machine alone: what is sent there must be encrypted. Give what 'plures deploy "
                "keys' has made (the server: --keys; a node: --ca and --key); --insecure is for 127.0.0.1."
            )
        if self.ca is not None and not self.ca.is_file():
            raise InvalidConfig(f"There is no certificate {self.ca}. 'plures deploy keys' makes one.")
        if self.ca is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=self.ca.read_text("ascii"))
            except (OSError, ValueError) as error:  # an error of ssl is one of the system
                raise InvalidConfig(f"{self.ca} is no certificate: give the ca.crt of 'plures deploy keys'.") from error

    @property
    def insecure(self) -> bool:
        return self.ca is None

    @property
    def ca_bytes(self) -> bytes | None:
        return None if self.ca is None else self.ca.read_bytes()

    @property
    def reached(self) -> str:
        """The address for whoever is on the SuperLink's own machine."""
        host = ANY.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
