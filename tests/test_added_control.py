"""The control `random` is part of every run that ranks methods; `controls: off` leaves it out."""

from pathlib import Path
from typing import Any

import pytest

import assay
from assay.suite.spec import make_suite, parse_fields, parse_suite
from small_worlds import make_images, make_net

QUIET = {"progress": False}
PROTOCOL = ["single_deletion"]


def labels(methods: list[Any], protocols: list[Any] = PROTOCOL, **how: Any) -> list[str]:
    results = assay.benchmark(make_net(), make_images(6), methods, protocols, **QUIET, **how)
    return list(results.entries.methods)


def test_it_comes_last_and_is_written_into_the_suite(tmp_path: Path) -> None:
    assert labels(["saliency", "input_x_gradient"], out=tmp_path)[-1] == "random"
    assert assay.load(tmp_path).spec.methods[-1] == "random"


@pytest.mark.parametrize(
    "methods", [["random", "saliency"], [{"random": {"grid": 2}}, "saliency"], ["random", "edge"]]
)
def test_one_that_is_there_is_enough(methods: list[Any]) -> None:
    assert len(labels(methods)) == 2


def test_nothing_is_added_where_nothing_is_ranked() -> None:
    assert labels(["edge"]) == ["edge"]  # only a control
    assert labels(["saliency"], ["drop_stability"]) == ["saliency"]  # describes the network


def test_it_can_be_left_out(tmp_path: Path) -> None:
    assert labels(["saliency"], controls="off", out=tmp_path) == ["saliency"]
    assert assay.load(tmp_path).spec.controls == "off"
    assert labels(["saliency"], out=tmp_path) == ["saliency", "random"]  # a run may gain it later


def test_a_name_that_is_taken_is_no_control() -> None:
    assert labels([{"saliency": {"as": "random"}}]) == ["random", "random control"]


def test_it_is_said_and_foretold(capsys: pytest.CaptureFixture[str]) -> None:
    net, data = make_net(), make_images(6)
    expected = assay.dry_run(net, data, ["saliency"], ["deletion"])
    results = assay.benchmark(net, data, ["saliency"], ["deletion"])
    assert capsys.readouterr().err.count("The control `random` was added") == 1
    assert results.manifest["forwards"] == expected.forwards - expected.looked
    without = assay.dry_run(net, data, ["saliency"], ["deletion"], controls="off")
    assert without.forwards < expected.forwards


def test_suites_say_on_or_off() -> None:
    fields = {"environments": ["modulo"], "methods": ["saliency"], "protocols": ["deletion"]}
    assert parse_suite("controls: off\n" + _text(fields), "text").controls == "off"
    assert make_suite({**fields, "controls": "off"}).dump().count("controls: 'off'") == 1
    assert "controls" not in make_suite(fields).dump()
    with pytest.raises(assay.InputError, match="expected on or off, got 'few'"):
        make_suite({**fields, "controls": "few"})
    with pytest.raises(assay.InputError, match="Wrong `controls`"):
        assay.benchmark(make_net(), make_images(6), ["saliency"], controls="none")  # type: ignore[arg-type]


def _text(fields: dict[str, Any]) -> str:
    text = make_suite(fields).dump()
    assert parse_fields(text, "text")
    return text
