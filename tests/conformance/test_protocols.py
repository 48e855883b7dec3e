"""Every registered protocol, against maps whose worth is known: tested by existing."""

import pytest
import torch

import assay
from assay.conformance import protocols as checks
from assay.conformance.protocols import WORLDS
from assay.conformance.worlds import Fault, linear_texts
from assay.plugins import registry
from conformance.everywhere import check_everywhere, made
from small_worlds import make_images, make_net

# Options beside the defaults that change what a protocol computes; all kept cheap.
LOGIT = {"steps": 8, "output": "logit"}
COARSE = {"steps": (0, 0.3, 1), "output": "log_odds", "units": {"grid": {"side": 4}}}
RATIONALE = {"shares": (0.2, 0.6), "units": {"grid": {"side": 4}}}
FEW = {"stride": 0.25, "subsets": 20}
M4, CAPTUM, FITTED = {"variant": "m4"}, {"variant": "captum"}, {"normalize": True}
SIDES = ("overall", "positive", "negative", "positive_smooth")
LOCATED = ("attribution_percent", "pointing_game", "synscore")
CHEAP = {
    **{name: [LOGIT, {**LOGIT, "variant": "m4"}] for name in ("morf", "lerf", "abpc")},
    **{name: [LOGIT, COARSE] for name in ("deletion", "insertion")},
    "accuracy_morf": [{"steps": 8}],
    "accuracy_lerf": [{"steps": 8}],
    "incremental_deletion": [LOGIT, COARSE, {"steps": "idsds"}],
    "comprehensiveness": [{}, {**RATIONALE, "output": "logit"}],
    "sufficiency": [{}, {**RATIONALE, "output": "log_odds"}],
    "single_deletion": [{"grid": 4}],
    "road_morf": [{"steps": 8}, {"variant": "road"}],
    "road_lerf": [{"steps": 8}, {"variant": "road"}],
    "soundness": [{"fill": "zero"}, {"fill": "zero", "units": {"grid": {"side": 4}}}],
    "completeness": [{"fill": "zero"}, {"fill": "zero", "units": {"grid": {"side": 4}}}],
    "infidelity": [FEW, *({**FEW, **other} for other in (M4, CAPTUM, {**CAPTUM, **FITTED}))],
    "faithfulness_correlation": [{"subsets": 40}, {"subsets": 40, "grid": 4, "share": 0.5}],
    "sensitivity_n": [{"subsets": 20, "grid": 4}],
    "truth_f1": [{"truth": side} for side in SIDES],
    **{name: [{"truth": side} for side in SIDES[:2]] for name in LOCATED},
    "modulo_sensitivity_n": [{}, {"permutations": 20}],
    "part_deletion": [{}, {"output": "probability"}],
    "part_completeness": [{}, {"output": "probability"}],
}
ALL = [p for p in registry.everything("protocol") if not p.own]
NAMES = [p.name for p in ALL if p.scope == "batch"]


def option_sets(name):
    return CHEAP.get(name, [{}])


def takes_maps_at_their_word(options) -> bool:
    """Captum's infidelity fits no scale unless told so."""
    return options.get("variant") == "captum" and not options.get("normalize")


def a_tiny_scale_does_not_matter(exam, item):
    checks.a_scale_does_not_matter(exam, item, 1e-6)


def a_scale_matters(exam, item):
    for scale in (1e-6, 1e6):
        with pytest.raises(Fault, match="scores differently"):
            checks.a_scale_does_not_matter(exam, item, scale)


def rules_of(name, options):
    """All that can be asked of these options."""
    judged = registry.get("protocol", name).judges
    whole_set, maps = judged == "set", judged != "model"
    scale = [checks.a_scale_does_not_matter, a_tiny_scale_does_not_matter]
    return [
        *([checks.the_oracle_beats_noise] if maps else []),
        checks.signs_matter_as_declared,
        *([] if whole_set else [checks.neighbours_do_not_matter]),
        checks.the_same_twice,
        checks.the_map_is_not_touched,
        *([a_scale_matters] if takes_maps_at_their_word(options) else scale),
        *([checks.a_constant_map_is_scored] if maps else []),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_rules(name):
    """Under every option set, in all worlds where it applies."""
    for options in option_sets(name):
        rules = rules_of(name, options)
        check_everywhere({name: options}, WORLDS, checks.exact_scores, rules)


@pytest.mark.parametrize("name", NAMES)
def test_scores_stay_in_their_range(name):
    protocol = registry.get("protocol", name)
    painted = "parts" in protocol.required(protocol.defaults)
    exam = made(checks.painted_parts if painted else checks.small_images)
    for options in option_sets(name):
        usual = {k: v for k, v in options.items() if k != "output"}  # the range is of the usual one
        checks.scores_stay_in_their_range(exam, {name: usual})


def ordered(name):
    """The option sets under which pixels are ranked one by one."""
    protocol = registry.get("protocol", name)
    if protocol.uses != "order" or "single_deletion" in name:
        return []  # what takes entries together
    pixels = {"units": "elements"} if "units" in protocol.options else {}
    return [{**options, **pixels} for options in option_sets(name) if "units" not in options]


@pytest.mark.parametrize("name", [name for name in NAMES if ordered(name)])
def test_order_protocols_see_only_the_order(name):
    """Pixels as units: a rising transform changes nothing."""
    protocol = registry.get("protocol", name)
    for options in ordered(name):
        maps = torch.randn(6, 16, 16, generator=torch.Generator().manual_seed(0))
        if not protocol.signs_matter(protocol.configure(options)):
            maps = maps.abs()  # what is ranked is the size
        exam, item = made(checks.small_images), {name: options}
        first = checks.scores(exam, maps, item)
        second = checks.scores(exam, maps.double().mul(3).exp(), item)
        # Percentiles interpolate between values, so the strict rule may move by one unit.
        tolerance = 0.05 if options.get("variant") == "m4" else 0
        assert first.numpy() == pytest.approx(second.numpy(), abs=tolerance)


@pytest.mark.parametrize("name", [p.name for p in ALL])
def test_every_protocol_describes_itself(name):
    protocol = registry.get("protocol", name)
    assert protocol.summary.endswith(".")
    assert protocol.title
    assert protocol.cite
    assert protocol.metric
    low, high = protocol.range
    assert low < high
    assert protocol.chance == "measured" or low <= protocol.chance <= high


@pytest.mark.parametrize("fill", registry.names("fill"))
@pytest.mark.parametrize(
    "protocol", ["deletion", "sufficiency", "single_deletion", "infidelity", "sensitivity_n"]
)
def test_every_fill_serves_every_protocol(fill, protocol):
    """On images, or on tokens where it is for these."""
    model = assay.model(make_net(), mean=[0.5] * 3, std=[0.2] * 3)
    x, y = make_images(4)
    maps = torch.rand(4, 16, 16, generator=torch.Generator().manual_seed(0))
    if fill in ("pad", "mask"):
        texts = linear_texts()
        model, x, y, maps = texts.net, texts.x[:4], texts.y[:4], texts.truth[:4]
    if fill == "given":  # these data have no baseline of their own
        with pytest.raises(assay.NotApplicable, match="baseline that the data hold"):
            assay.score(model, x, y, maps, protocol, fill=fill)
        return
    if fill == "rerender":  # nor are they painted of parts
        with pytest.raises(assay.NotApplicable, match="painted of parts"):
            assay.score(model, x, y, maps, protocol, fill=fill)
        return
    values = assay.score(model, x, y, maps, protocol, fill=fill)
    assert torch.isfinite(values).all()
