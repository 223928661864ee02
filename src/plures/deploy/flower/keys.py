"""Certificates and keys for a federation: made once, by `cryptography` alone."""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plures.core.errors import InvalidConfig

CA_KEY, CA, SERVER_KEY, SERVER, SECRET = "ca.key", "ca.crt", "server.key", "server.pem", "secret"
NODES = "nodes"
DAYS = 365
OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Under which the server reaches its own SuperLink."""
USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def make_keys(folder: Path, hosts: Sequence[str], nodes: Sequence[str], days: int = DAYS) -> list[Path]:
    """What is not there yet: the authority, the server's certificate, its secret, and a key for each node."""
    problems = [problem for node in dict.fromkeys(nodes) for problem in problems_of(folder, node)]
    is_new = not (folder / CA).exists()
    if is_new and not hosts:
        problems.append("Give --host: the name or address under which nodes reach the server.")
    if not is_new and hosts:
        problems.append(
            f"{folder / CA} is there already: its hosts are fixed. Choose another folder, or leave --host out."
        )
    if problems:
        raise InvalidConfig(problems)
    try:
        (folder / NODES).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        made = make_certificates(folder, hosts, days) if is_new else []
        if not (folder / SECRET).exists():
            made.append(written(folder / SECRET, secrets.token_hex(32).encode(), private=True))
        return made + [path for node in dict.fromkeys(nodes) for path in make_node_key(folder / NODES / node)]
    except OSError as error:
        raise InvalidConfig(f"Cannot write {error.filename or folder}: {error.strerror or error}.") from error


def problems_of(folder: Path, node: str) -> list[str]:
    allowed = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in node)
    if not allowed or not node.strip(".") or node.endswith(".pub"):
        return [f"'{node}' cannot be a file: name nodes by letters, digits, '.', '_' and '-', without '.pub'."]
    if (folder / NODES / node).exists():
        return [f"The node '{node}' has a key already: {folder / NODES / node}."]
    return []


def make_certificates(folder: Path, hosts: Sequence[str], days: int) -> list[Path]:
    """An authority of our own and a certificate of the server that it has signed."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = named("Plures federation")
    alternatives = [general(host) for host in dict.fromkeys([*hosts, *OWN_HOSTS])]
    own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    ca = (
        begun(issuer, issuer, authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(own, critical=False)
        .sign(authority, hashes.SHA384())
    )
    certificate = (
        begun(named(hosts[0]), issuer, server.public_key(), days)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        .sign(authority, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    return [
        written(folder / CA_KEY, as_pem(authority), private=True),
        written(folder / SERVER_KEY, as_pem(server), private=True),
        written(folder / SERVER, certificate.public_bytes(pem)),
        written(folder / CA, ca.public_bytes(pem)),
    ]


def make_node_key(path: Path) -> list[Path]:
    """A key and its public half, in the form of OpenSSH, which Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, ssh, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return [written(path, private, private=True), written(path.with_name(path.name + ".pub"), public + b"\n")]


def written(path: Path, data: bytes, *, private: bool = False) -> Path:
    """A new file, which from the first byte on only its owner can read if it is private."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    with os.fdopen(number, "wb") as file:
        file.write(data)
    return path


def as_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, serialization.NoEncryption())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def begun(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in allowed for name in USAGES})


def general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidConfig(f"--host {host}: give the name or the address of a machine, without a port.") from error


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidConfig(f"Cannot read the key {path}: {error}. 'plures deploy keys' makes one.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidConfig(f"The key {path} is of another kind than Flower takes: make one by 'plures deploy keys'.")
    return key
