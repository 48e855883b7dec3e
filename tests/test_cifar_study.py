"""Every method under every protocol on a trained network: what must come out at least."""

import importlib.util
from pathlib import Path

import pytest

from assay.run import run
from beside import SHARED, beside

STUDY = Path(__file__).parents[1] / "benchmarks" / "cifar.py"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    beside("cifar10/cifar10_test_lossless.parquet")
    spec = importlib.util.spec_from_file_location("cifar_study", STUDY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("cifar")
    results = run(module.suite(SHARED, 200), folder, workers=2, progress=False)
    assert not results.failures
    return module, results


@pytest.mark.slow
def test_integrated_gradients_and_gradcam_are_clearly_above_random(study):
    _, results = study
    verdicts = {(r["method"], r["protocol"]): r["verdict"] for r in results.against("random")}
    assert verdicts["integrated_gradients", "deletion"] == "above"
    assert verdicts["gradcam", "lerf"] == "above"
    assert verdicts["gradcam", "accuracy_lerf"] == "above"


@pytest.mark.slow
def test_the_table_shows_every_method_under_every_protocol(study):
    module, results = study
    table = module.table(results)
    for method in results.manifest["methods"]:
        assert f"| {method} |" in table or method == "oracle"  # there is no truth here
    for protocol in results.manifest["protocols"]:
        assert f" {protocol} |" in table
    assert "↻" in table  # occlusion under single deletion
