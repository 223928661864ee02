"""The command line."""

from plures.cli.app import main

__all__ = ["main"]
