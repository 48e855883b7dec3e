"""Gradient methods averaged over noisy copies of the input, under the papers' names.

They are presets of the option `noise` of every gradient method: 25 copies, Gaussian noise of 15 %
of the input's range. All kinds are computed from the same maps, so two cost as much as one.
"""

from assay.methods.gradients import input_x_gradient, integrated_gradients, saliency
from assay.plugins.presets import preset

# Where the presets differ from the papers they are named after.
SMILKOV = """
Differs from the paper: the number of copies and the width of the noise are choices; SmoothGrad's
authors recommend about 50 copies and 10 to 20 %, here 25 and 15 %.
"""
IDSDS = """
Differs from the paper: IDSDS uses 4 copies and noise of 1 after normalisation, which is
`noise: {samples: 4, sigma: 1, relative: false}`.
"""

preset(
    saliency,
    "smoothgrad",
    title="SmoothGrad",
    about=f"""The mean gradient over noisy copies of the input.

Formula: mean_i df/dx at x + e_i, e_i ~ N(0, sigma^2).
{SMILKOV}""",
    cite="smilkov2017",
    noise={"kind": "smoothgrad"},
)
preset(
    saliency,
    "smoothgrad_sq",
    title="SmoothGrad squared",
    about=f"""The mean squared gradient over noisy copies of the input.

Formula: mean_i (df/dx)^2 at x + e_i, e_i ~ N(0, sigma^2), channel by channel.
{SMILKOV}""",
    cite="hooker2019",
    noise={"kind": "smoothgrad_sq"},
)
preset(
    saliency,
    "vargrad",
    title="VarGrad",
    about=f"""The variance of the gradient over noisy copies of the input.

Formula: var_i df/dx at x + e_i, e_i ~ N(0, sigma^2), channel by channel.
{SMILKOV}""",
    cite="adebayo2018",
    noise={"kind": "vargrad"},
)
preset(
    input_x_gradient,
    "ixg_sg",
    title="IxG-SG",
    about=f"""Input x gradient averaged over noisy copies, each times its own gradient.

Formula: mean_i z_i df/dx at z_i = x + e_i, e_i ~ N(0, sigma^2).
{IDSDS}""",
    cite="smilkov2017, hesse2024",
    noise={"kind": "smoothgrad"},
)
preset(
    integrated_gradients,
    "ig_sg",
    title="IG-SG",
    about=f"""Integrated gradients averaged over noisy copies of the input.

Formula: mean_i IG(x + e_i), e_i ~ N(0, sigma^2), IG as in `integrated_gradients`.
{IDSDS}""",
    cite="smilkov2017, sundararajan2017",
    noise={"kind": "smoothgrad"},
)
preset(
    integrated_gradients,
    "ig_sg_sq",
    title="IG-SG-SQ",
    about=f"""The mean square of integrated gradients over noisy copies of the input.

Formula: mean_i IG(x + e_i)^2, e_i ~ N(0, sigma^2), channel by channel.
{IDSDS}""",
    cite="hooker2019, sundararajan2017",
    noise={"kind": "smoothgrad_sq"},
)
preset(
    integrated_gradients,
    "ig_var",
    title="IG-Var",
    about=f"""The variance of integrated gradients over noisy copies of the input.

Formula: var_i IG(x + e_i), e_i ~ N(0, sigma^2), channel by channel.
{SMILKOV}""",
    cite="adebayo2018, sundararajan2017",
    noise={"kind": "vargrad"},
)
