"""Deployment on Flower: the extra `plures[flower]`. Nothing outside this package imports `flwr`.

Private parts of Flower are used in `fleet.py`, `session.py`, `arriving.py` and `refusals.py` alone; when they change,
tests/deploy/flower/test_contract.py fails.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from plures.core.errors import InvalidConfig

FLOWER = "1.41"


def check_installed() -> None:
    """Flower is here, in the version whose private parts are known."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InvalidConfig('Deployment needs Flower, which is not installed: pip install "plures[flower]".') from None
    if found != FLOWER and not found.startswith(f"{FLOWER}."):
        raise InvalidConfig(
            f'Deployment needs Flower {FLOWER}, but {found} is installed: pip install "plures[flower]".'
        )
