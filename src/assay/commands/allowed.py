"""What the options of a plug-in may be, in words, read off its signature."""

from typing import Any

from assay.plugins.options import in_words

# What the runner applies to any method that takes it.
COMMON = {
    "reduce": "how channels become one number: sum, abs_sum, sum_abs, square or none",
    "abs": "whether signs are dropped at last: true or false",
    "noise": "copies with noise, {kind: smoothgrad, smoothgrad_sq or vargrad, samples: 1 or more, "
    "sigma: above 0, relative: true or false}",
    "label": "what it is called in tables",
}


def allowed_values(plugin: Any) -> dict[str, str]:
    """Each option with what it may be; empty where its type does not say."""
    nested = plugin.nested()
    return {
        name: f"a {nested[name]}, by name or with options"
        if name in nested
        else in_words(option.annotation)
        for name, option in plugin.options.items()
    }
