"""Operators by what they do, under the names by which networks call them."""

# They move numbers to other positions, or leave them in place.
MOVING = frozenset({
    "__get__", "alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to",
    "cat", "channel_shuffle", "chunk", "clone", "contiguous", "detach", "diagonal", "double",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "expand", "expand_as",
    "feature_alpha_dropout", "flatten", "flip", "float", "gather", "getitem", "half",
    "hstack", "index_select", "masked_fill", "masked_select", "moveaxis", "movedim", "narrow",
    "native_dropout", "pad", "permute", "pixel_shuffle", "pixel_unshuffle", "ravel", "repeat",
    "repeat_interleave", "reshape", "reshape_as", "roll", "rot90", "scatter", "select",
    "setitem", "split", "split_with_sizes", "squeeze", "stack", "swapaxes", "swapdims", "t",
    "take", "take_along_dim", "tensor_split", "tile", "to", "transpose", "tril", "triu",
    "type", "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as",
    "vstack", "where", "zeros_like",
})  # fmt: skip
# Linear in their inputs, without weights.
LINEAR = frozenset({
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "add", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "cumsum", "diff", "fold", "interpolate", "mean", "nanmean",
    "neg", "positive", "rsub", "sub", "sum", "upsample", "upsample_bilinear",
    "upsample_nearest",
})  # fmt: skip
# Linear in each factor.
PRODUCTS = (
    "addbmm", "addmm", "addmv", "baddbmm", "bilinear", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "einsum",
    "linear", "matmul", "mul", "tensordot",
)  # fmt: skip
# Functions of one number.
ELEMENTWISE = (
    "abs", "atan", "celu", "clamp", "clamp_max", "clamp_min", "cos", "elu", "erf", "exp",
    "expm1", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
    "log", "log1p", "log_sigmoid", "logsigmoid", "mish", "pow", "prelu", "rdiv", "reciprocal",
    "relu", "relu6", "rpow", "rsqrt", "selu", "sigmoid", "silu", "sin", "softplus",
    "softshrink", "softsign", "sqrt", "square", "tanh", "tanhshrink", "threshold",
)  # fmt: skip
LARGEST = (
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "max",
    "max_pool1d", "max_pool2d", "max_pool3d", "maximum",
)  # fmt: skip
SMALLEST = ("amin", "min", "minimum")
# Elementwise operators that networks use between layers.
ACTIVATIONS = (
    "celu", "clamp", "clamp_max", "clamp_min", "elu", "gelu", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "log_sigmoid", "logsigmoid", "mish", "neg", "positive",
    "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
)  # fmt: skip
# They return shares between 0 and 1, which weight another signal.
GATES = ("hardsigmoid", "sigmoid", "softmax")
