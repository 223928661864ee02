"""The page on adapters shows the example, and the example runs."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "adapters.py"


def test_the_code_of_the_page_is_that_of_the_example():
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block == EXAMPLE.read_text(encoding="utf-8")


def test_the_example_ends_with_personal_models_that_beat_the_shared_one(capsys):
    found = runpy.run_path(str(EXAMPLE))
    before, after = found["together"], found["result"]
    assert (before.status, after.status) == ("finished", "finished")
    # Two of ten digits each: whoever tells its two apart is far above one model for all.
    accuracy = [run.metrics[f"{run.headline}/test/accuracy"].weighted for run in (before, after)]
    assert accuracy[1] > accuracy[0] + 0.1
    # A 1x1 convolution and a norm of width 32, and norms of widths 16 and 32: 1,024 + 64 + 32 + 64.
    assert "total personal" in (shown := capsys.readouterr().out)
    assert "1,184" in shown
