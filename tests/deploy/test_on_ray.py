"""The same on actors of Ray: the same bits, and an actor that dies is one loss."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray, which is large")
def test_actors_end_where_clients_of_one_process_end_and_one_that_dies_is_a_loss(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.deploy.ray_script", str(tmp_path)]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=True)
    undisturbed, with_a_death = json.loads(done.stdout.splitlines()[-1])
    assert undisturbed["same"] == [True] * 4
    assert with_a_death["lost"][0] == {}
    assert with_a_death["lost"][1] == {"1": "gone"}
    assert with_a_death["counted"] == 4
    assert any("put aside" in text for text in with_a_death["said"])
