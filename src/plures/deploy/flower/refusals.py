"""What a SuperLink, or the way to it, says when something goes wrong, in one sentence."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TypeVar

import httpx
from flwr.supercore.error import FlowerError
from flwr.supercore.run import RunNotRunningException

from plures.deploy.flower.links import Link, SuperLinkError

Some = TypeVar("Some")


def told(link: Link, call: Callable[[], Some]) -> Some:
    """What a call gives; what goes wrong in one sentence."""
    try:
        return call()
    except (httpx.HTTPError, OSError) as error:
        raise SuperLinkError(f"{sentence(link, error)}.") from error
    except RunNotRunningException as error:
        raise SuperLinkError("The SuperLink has ended this run.") from error


def sentence(link: Link, error: Exception) -> str:
    """Without its full stop, for who has more to say."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"The SuperLink on {link.address} refuses: {reason(error)}"
    if is_distrust(error):
        return (
            f"The SuperLink on {link.address} has a certificate that {link.ca} does not vouch for, or one for another "
            "host: give the ca.crt of the server's keys, and a host that 'plures deploy keys' was told of"
        )
    if "[SSL" in str(error):
        return f"What listens on {link.address} does not speak TLS: perhaps it was started with --insecure"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and link.insecure:
        return f"The SuperLink on {link.address} has broken off; should it go on so, it wants TLS, and no --insecure"
    return f"The SuperLink on {link.address} cannot be reached ({type(error).__name__})"


def reason(error: httpx.HTTPStatusError) -> str:
    """As Flower says it to people."""
    text = error.response.text
    found = FlowerError.from_json(text)
    if found is None:
        return f"{error.response.status_code} {text[:200].strip()}".strip()
    return found.message.rstrip(".") + ("" if found.public_details is None else f" ({found.public_details[:200]})")


def code_of(error: BaseException | None) -> int | None:
    """Flower's own number of what went wrong."""
    found = FlowerError.from_json(error.response.text) if isinstance(error, httpx.HTTPStatusError) else None
    return None if found is None else found.code


def is_distrust(error: Exception) -> bool:
    """Whether the other side has shown a certificate that is none to us."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
