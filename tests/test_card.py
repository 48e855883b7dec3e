"""The card of a fine-tuned network: what it allows, and which network it belongs to."""

import json
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import assay
from assay.conformance.worlds import designed_card
from assay.data.sample_hashes import hash_inputs
from assay.models.carded import read_card
from assay.plugins.identity import canonical
from assay.plugins.needs import say_missing
from assay.suite.spec import choose_one
from assay.types import Card
from assay.types.card import fill_text, in_domain_need
from assay.types.hashing import hash_numbers


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))


def card_of(network, **changes):
    made = designed_card(4, "zero", assay.model(network).weights_hash)
    return replace(made, **changes)


def images(n=4):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, 8, 8, generator=generator), torch.arange(n) % 3


def idsds(model, **options):
    x, y = images()
    return assay.score(
        model, x, y, torch.randn(4, 8, 8), {"in_domain_single_deletion": options}
    )  # fmt: skip


def test_a_card_makes_the_protocol_applicable():
    network = net()
    with pytest.raises(assay.NotApplicable, match=r"assay finetune .*--grid 4 --fill zero"):
        idsds(network)
    model = assay.model(network, card=card_of(network))
    assert {"in_domain", "in_domain:grid=4,fill=zero"} <= model.capabilities
    assert idsds(model).shape == (4,)
    assert isinstance(model.card["in_domain"], Card)
    again = assay.model(assay.model(network), card=card_of(network))
    assert idsds(again).shape == (4,)


@pytest.mark.parametrize("options", [{"grid": 2}, {"fill": "uniform"}, {"fill": {"blur": {}}}])
def test_another_grid_or_fill_does_not_count(options):
    network = net()
    model = assay.model(network, card=card_of(network))
    with pytest.raises(assay.NotApplicable, match="its card is of grid 4 and fill zero") as raised:
        idsds(model, **options)
    grid, fill = options.get("grid", 4), fill_text(options.get("fill", "zero"))
    assert f"--grid {grid} --fill {fill}" in str(raised.value)
    assert "score with these" in str(raised.value)


def test_a_placebo_does_not_count():
    network = net()
    model = assay.model(network, card=card_of(network, placebo=True))
    assert not any("in_domain" in word for word in model.capabilities)
    with pytest.raises(assay.NotApplicable, match=r"a placebo: score .*assay finetune"):
        idsds(model)


def test_another_probability_does_not_count():
    network = net()
    card = card_of(network, probability=0.3)
    assert not card.capabilities
    with pytest.raises(assay.NotApplicable, match=r"probability 0\.3, not 0\.5.*assay finetune"):
        idsds(assay.model(network, card=card))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("grid", "4", "a whole number"), ("grid", 4.5, "a whole number"),
        ("grid", True, "a whole number"), ("n", None, "a whole number"),
        ("mad_softmax", "0.1", "a number"), ("mad_gradcam", [], "a number"),
        ("placebo", 0, "true or false"), ("fill", 3, "a fill"), ("base_sha256", 1, "a text"),
    ],
)  # fmt: skip
def test_fields_of_another_type_are_refused(name, value, message):
    with pytest.raises(assay.InputError, match=f"`{name}` of a card to be {message}, got"):
        Card.from_json({**card_of(net()).to_json(), name: value})


def test_a_card_of_other_weights_is_refused():
    base, other = net(0), net(1)
    with pytest.raises(assay.InputError, match="one of other weights"):
        assay.model(other, card=card_of(base))
    tuned = card_of(base, base_sha256=assay.model(other).weights_hash)
    with pytest.raises(assay.InputError, match="before fine-tuning"):
        assay.model(other, card=tuned)
    with pytest.raises(assay.InputError, match="`Card`"):
        assay.model(base, card=3)


def test_fills_have_one_text():
    assert fill_text("zero") == fill_text({"zero": {}}) == "zero"
    assert fill_text({"blur": {"sigma": 10.0}}) == "blur"  # the default
    assert fill_text({"blur": {"sigma": 5.9}}) == "blur(sigma=5.9)"
    value = torch.zeros(3)
    assert fill_text(value) == fill_text(canonical(value))
    assert fill_text(value) != fill_text(value + 1)
    assert "--fill 'blur(sigma=5.9)'" in say_missing(
        "m", [in_domain_need(4, {"blur": {"sigma": 5.9}})]
    )
    choice = choose_one("protocol", {"in_domain_single_deletion": {"fill": {"blur": {}}}})
    needs = choice.plugin.required(choice.options)
    assert needs == {"image", "in_domain:grid=4,fill=blur"}


def test_it_is_stored_as_json(tmp_path):
    card = card_of(net(), mad_gradcam=0.25, fill={"blur": {"sigma": 2.0}}, seeds_overlap=0.5)
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card.to_json()))
    assert read_card(path) == card
    assert Card.from_json({**card.to_json(), "later": 1}) == card
    fields = card.to_json()
    del fields["grid"]
    with pytest.raises(assay.InputError, match="no `grid`"):
        Card.from_json(fields)
    path.write_text("[1]")
    with pytest.raises(assay.InputError, match="as JSON"):
        read_card(path)
    with pytest.raises(assay.PrerequisiteError, match="no such file"):
        read_card(tmp_path / "none.json")


def test_a_suite_takes_the_card_and_a_run_stores_it(tmp_path):
    network = net()
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\ndef make():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))\n"
    )
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card_of(network).to_json()))
    address = f"{tmp_path}/net.py:make"

    def run(item):
        spec = assay.Spec(
            datasets=[images()], models=[item], methods=["saliency"],
            protocols=["in_domain_single_deletion", "single_deletion"],
        )  # fmt: skip
        return assay.run_suite(spec, tmp_path / "run", progress=False)

    def statuses(results):
        return {c["protocol"]: c["status"] for c in results.cells}

    without = statuses(run(address))
    assert without["in_domain_single_deletion"] == "n/a"
    results = run({address: {"card": str(path)}})  # resumes, and fills in what was n/a
    assert set(statuses(results).values()) == {"ok"}
    entry = next(iter(results.manifest["models"].values()))
    assert entry["card"]["in_domain"]["grid"] == 4
    rows = results.query("select protocol, sample, value from scores where headline").to_pylist()
    table = {(r["protocol"], r["sample"]): r["value"] for r in rows if r["value"] is not None}
    values = [
        [value for (protocol, _), value in sorted(table.items()) if protocol == name]
        for name in ("single_deletion", "in_domain_single_deletion")
    ]
    assert values[0] == values[1]  # one network, one score


def test_in_words_whether_it_is_the_same_network():
    card = card_of(net(), mad_softmax=0.02, mad_gradcam=0.03)
    assert card.same_network is None
    assert "`--placebo`" in card.sentence
    assert "`--seeds`" in card.sentence
    beside = replace(card, placebo_mad_softmax=0.015, placebo_mad_gradcam=0.02)
    assert beside.same_network is None
    assert "`--placebo`" not in beside.sentence
    whole = replace(beside, seeds_mad_softmax=0.1, seeds_mad_gradcam=0.2)
    assert whole.same_network
    assert whole.sentence.startswith("Still the same network")
    assert "0.020 (placebo 0.015, two seeds 0.100)" in whole.sentence
    assert "0.030 (placebo 0.020, two seeds 0.200)" in whole.sentence
    far = replace(whole, mad_softmax=0.2)
    assert far.same_network is False
    assert far.sentence.startswith("Not the same network")
    other_maps = replace(whole, mad_gradcam=0.3)
    assert other_maps.same_network is False
    assert "placebo and further than two seeds differ. " in other_maps.sentence
    assert replace(whole, mad_gradcam=None).same_network
    assert "Grad-CAM" not in replace(whole, mad_gradcam=None).sentence
    for made in (card, beside, whole, far, replace(whole, placebo=True)):
        assert all(len(part.split()) <= 25 for part in made.sentence.split(". "))


@pytest.mark.parametrize("share", [0.95, 0.999, 1.0, 1.05])
@pytest.mark.parametrize("measure", ["softmax", "gradcam"])
def test_near_a_limit_the_sentence_decides_nothing(share, measure):
    card = card_of(
        net(), mad_softmax=0.02, mad_gradcam=0.02, placebo_mad_softmax=0.02,
        placebo_mad_gradcam=0.02, seeds_mad_softmax=0.5, seeds_mad_gradcam=0.5,
    )  # fmt: skip
    assert card.sentence.startswith("Still the same network")  # as far as the placebo is close
    like_seeds = replace(card, **{f"seeds_mad_{measure}": 0.02 / share})
    assert "Undecided" in like_seeds.sentence
    assert "about as far as two seeds differ" in like_seeds.sentence
    like_limit = replace(card, **{f"placebo_mad_{measure}": 0.01 / share})
    assert "about twice as far as the placebo" in like_limit.sentence
    for made in (like_seeds, like_limit):
        assert "Still" not in made.sentence
        assert "less than" not in made.sentence


def test_a_network_that_did_not_move_is_the_same():
    card = card_of(
        net(), mad_softmax=0.0, mad_gradcam=0.0, placebo_mad_softmax=0.0, placebo_mad_gradcam=0.0,
        seeds_mad_softmax=0.1, seeds_mad_gradcam=0.1,
    )  # fmt: skip
    assert card.same_network
    assert card.sentence.startswith("Still the same network")
    assert replace(card, mad_gradcam=0.01).same_network is False


def test_the_training_samples_are_read_from_the_file_beside_it(tmp_path):
    hashes = torch.tensor([-5, 3, 2**62])
    card = card_of(net(), training_sha256=hash_numbers(hashes), training_hashes=hashes)
    path, beside = tmp_path / "card.json", tmp_path / "training_samples.safetensors"
    path.write_text(json.dumps(card.to_json()))
    assert "training_hashes" not in card.to_json()
    alone = read_card(path)
    assert (alone.training_hashes, alone.training_sha256) == (None, None)
    save_file({"hashes": hashes}, beside)
    assert beside.stat().st_size < 200  # 8 bytes for a sample
    assert torch.equal(read_card(path).training_hashes, hashes)
    assert read_card(path) == card
    save_file({"hashes": hashes[:2].contiguous()}, beside)
    with pytest.raises(assay.InputError, match=r"training_samples\.safetensors.*another card"):
        read_card(path)
    beside.write_bytes(b"damaged")
    with pytest.raises(assay.InputError, match="delete it"):
        read_card(path)


def test_scores_of_samples_that_were_fine_tuned_on_are_warned_of():
    network, (x, y) = net(), images(20)
    trained = torch.unique(hash_inputs(x[12:]))
    card = card_of(network, training_sha256=hash_numbers(trained), training_hashes=trained)
    model = assay.model(network, card=card)
    protocols, call = ["in_domain_single_deletion"], {"progress": False}
    expected = r"fine-tuned on 8 of the 20 scored samples of `data` \(40%\): `0012`, `0013`, `0014`"
    with pytest.warns(RuntimeWarning, match=expected):
        assay.benchmark(model, (x, y), ["saliency"], protocols, **call)
    with pytest.warns(RuntimeWarning, match=r"8 of the 20 .*40%"):
        assay.score(model, x, y, torch.randn(20, 8, 8), protocols[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", "`sequential` is right on only")
        assay.benchmark(model, (x[:12], y[:12]), ["saliency"], protocols, **call)
        assay.benchmark(model, (x, y), ["saliency"], ["single_deletion"], **call)
