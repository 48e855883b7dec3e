"""The names of the study: the 23 methods of IDSDS as items of a suite, protocols and networks.

Differs from the paper where images have 32 pixels instead of 224: RISE's cells are an eighth of the
side in both, and a transformer's patches have four pixels. Integrated gradients use Gauss-Legendre
nodes, `STEPS` of them as in the paper, or fewer where many networks are scored.
"""

from collections.abc import Mapping, Sequence

from assay.plugins.option_types import Item

STEPS, FEW_STEPS = 50, 16  # of integrated gradients: as in the paper, and for many networks
MASKS, FEW_MASKS = 1000, 256  # of RISE, likewise
NOISE: Mapping[str, object] = {"samples": 4, "sigma": 1.0, "relative": False}  # the authors' noise
USUAL_NOISE: Mapping[str, object] = {"samples": 25, "sigma": 0.15, "relative": True}

SD = "single deletion"  # the label of the protocol: IDSDS on tuned networks, else SDS
FIXED, UPDATED = "incremental deletion, fixed", "incremental deletion, updated"  # IDS
RESNET, VGG, VIT = "resnet20", "vgg11", "vit_medium"  # in place of ResNet-50, VGG-16 and ViT-B/16
REFERENCES = (RESNET, VGG, VIT)
CONVOLUTIONAL = (RESNET, VGG)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0)
CELLS = 16  # of the default grid
OF_PROBABILITY = ", probability"  # ends the labels of what is explained or lost after the softmax
PARTS, MASK_ONLY, LOOK = "parts", "masks", "look"  # suites without methods of their own

RAW = ("IxG", "IxG-SG", "IG", "IG-U", "IG-SG")
PAIRS = {name: f"{name} abs" for name in RAW}  # each with its absolute values
CAMS = ("Grad-CAM", "Grad-CAM++", "SG-CAM++", "XGrad-CAM", "Layer-CAM")
AGNOSTIC = (*RAW, *PAIRS.values(), "IG-SG-SQ", "Saliency", "RISE", "RISE-U", *CAMS)  # 19
ATTENTION = ("Rollout", "CheferLRP")
INTRINSIC = ("B-cos", "BagNet")
ALL = (*AGNOSTIC, *ATTENTION, *INTRINSIC)  # 23
# Nine for all networks: raw and absolute, with and without noise, from both baselines, one CAM.
NINE = (
    "IxG", "IxG abs", "IxG-SG", "IG", "IG abs", "IG-U", "IG-U abs", "Saliency", "Grad-CAM",
)  # fmt: skip
TWINS = {"XGrad-CAM": "Grad-CAM"}  # identical on networks that end in a mean and one linear layer


def paper_methods(
    labels: Sequence[str],
    *,
    steps: int = STEPS,
    masks: int = MASKS,
    output: str = "logit",
    usual_noise: bool = False,
) -> list[Item]:
    """Methods by their labels, ordered so that those with one formula share its computation.

    Args:
        labels: Which of `ALL`.
        steps: Steps of integrated gradients.
        masks: Masks of RISE.
        output: What of the class is explained; RISE always takes the probability. Where it is
            asked for, the labels say so: `IxG, probability`.
        usual_noise: Whether SmoothGrad runs at its usual noise, and its CAM as published, instead
            of as the authors of IDSDS ran both.
    """
    path = {"steps": steps, "output": output}
    ixg, grad = "input_x_gradient", "integrated_gradients"
    field = {"baseline": "uniform_shared"}
    noise = USUAL_NOISE if usual_noise else NOISE
    smooth, square = ({**noise, "kind": kind} for kind in ("smoothgrad", "smoothgrad_sq"))
    cam = {"samples": noise["samples"], "variant": "paper" if usual_noise else "torchcam"}
    items: dict[str, Item] = {
        "IxG": {ixg: {"output": output}},
        "IxG abs": {ixg: {"output": output, "abs": True}},
        "IxG-SG": {ixg: {"output": output, "noise": smooth}},
        "IxG-SG abs": {ixg: {"output": output, "noise": smooth, "abs": True}},
        "IG": {grad: dict(path)},
        "IG abs": {grad: {**path, "abs": True}},
        "IG-U": {grad: {**path, **field}},
        "IG-U abs": {grad: {**path, **field, "abs": True}},
        "IG-SG": {grad: {**path, "noise": smooth}},
        "IG-SG abs": {grad: {**path, "noise": smooth, "abs": True}},
        "IG-SG-SQ": {grad: {**path, "noise": square}},
        "Saliency": {"saliency": {"output": output, "abs": True}},
        "RISE": {"rise": {"masks": masks}},
        "RISE-U": {"rise": {"masks": masks, "fill": "uniform_shared"}},
        "Grad-CAM": {"gradcam": {"output": output}},
        "XGrad-CAM": {"xgradcam": {"output": output}},
        "Layer-CAM": {"layercam": {"output": output}},
        "Grad-CAM++": {"gradcam_pp": {"output": output, "variant": cam["variant"]}},
        "SG-CAM++": {"smooth_gradcam_pp": {"output": output, **cam}},
        "Rollout": {"rollout": {"start": 1}},
        "CheferLRP": {"chefer_lrp": {"start": 1, "output": output}},
        "B-cos": {"bcos": {"output": output}},
        "BagNet": {"bagnet": {"output": output}},
    }  # fmt: skip
    end = OF_PROBABILITY if output == "probability" else ""
    return [labelled(items[label], f"{label}{end}") for label in items if label in labels]


def labelled(item: Item, label: str) -> Item:
    """The item with a label of its own."""
    ((name, options),) = item.items() if isinstance(item, Mapping) else ((str(item), {}),)
    return {name: {**options, "label": label}}
