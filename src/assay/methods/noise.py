"""Gradient methods averaged over noisy copies of the input, under the names papers give them."""

from assay.methods.gradients import input_x_gradient, integrated_gradients, saliency
from assay.registry import preset

preset(
    saliency,
    "smoothgrad",
    title="SmoothGrad",
    about="The mean gradient over noisy copies of the input.",
    cite="smilkov2017",
    noise={"kind": "smoothgrad"},
)
preset(
    saliency,
    "smoothgrad_sq",
    title="SmoothGrad squared",
    about="The mean squared gradient over noisy copies of the input.",
    cite="hooker2019",
    noise={"kind": "smoothgrad_sq"},
)
preset(
    saliency,
    "vargrad",
    title="VarGrad",
    about="The variance of the gradient over noisy copies of the input.",
    cite="adebayo2018",
    noise={"kind": "vargrad"},
)
preset(
    input_x_gradient,
    "ixg_sg",
    title="IxG-SG",
    about="Input x gradient averaged over noisy copies, each times its own gradient.",
    cite="smilkov2017, hesse2024",
    noise={"kind": "smoothgrad"},
)
preset(
    integrated_gradients,
    "ig_sg",
    title="IG-SG",
    about="Integrated gradients averaged over noisy copies of the input.",
    cite="smilkov2017, sundararajan2017",
    noise={"kind": "smoothgrad"},
)
preset(
    integrated_gradients,
    "ig_sg_sq",
    title="IG-SG-SQ",
    about="The mean square of integrated gradients over noisy copies of the input.",
    cite="hooker2019, sundararajan2017",
    noise={"kind": "smoothgrad_sq"},
)
preset(
    integrated_gradients,
    "ig_var",
    title="IG-Var",
    about="The variance of integrated gradients over noisy copies of the input.",
    cite="adebayo2018, sundararajan2017",
    noise={"kind": "vargrad"},
)
