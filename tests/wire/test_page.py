"""What the page of the wire shows is what runs, and its limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from plures.wire.bits import MOST_DIMENSIONS
from plures.wire.message import MOST_TENSORS, TENSOR_BYTES
from plures.wire.records import MOST_NAME_BYTES

PAGE = (Path(__file__).parents[2] / "docs/wire.md").read_text(encoding="utf-8")


def test_the_snippets_run_one_after_the_other():
    shown = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    exec(compile("\n".join(shown), "wire.md", "exec"), {})


def test_the_limits_are_told():
    limits = f"{MOST_TENSORS:,} tensors, {MOST_DIMENSIONS} dimensions, names of {MOST_NAME_BYTES} bytes"
    assert limits in PAGE
    assert f"{TENSOR_BYTES:,} for each tensor" in PAGE
    assert f"(at most {MOST_DIMENSIONS})" in PAGE
    assert f"(at most {MOST_NAME_BYTES} bytes)" in PAGE
