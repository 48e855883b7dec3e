"""The awkward run and its page, for the tests of the report."""

import pytest
from synthetic_run import small_plan, write

from assay.report.page import render
from assay.results import Results


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The awkward run."""
    return write(tmp_path_factory.mktemp("small"), small_plan())


@pytest.fixture(scope="session")
def page(small: Results) -> str:
    """The page of the awkward run."""
    return render(small)
