"""Real data and weights in a folder beside the project, where there is one."""

import os
from pathlib import Path

import pytest

# `ASSAY_TEST_DATA` names another folder; one that is not there hides them.
SHARED = Path(os.environ.get("ASSAY_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def beside(path: str) -> Path:
    """A file of that folder; without it the test is skipped, or the module that asks for it."""
    found = SHARED / path
    if not found.is_file():
        pytest.skip(f"needs {path} beside the project", allow_module_level=True)
    return found
