"""Product code asks plug-ins for declared facts; it does not decide by their names."""

import ast
from collections.abc import Iterator
from pathlib import Path

from assay.plugins import registry

SOURCE = Path(__file__).parents[1] / "src" / "assay"
# These name plug-ins by design: the defaults, the questions in runs that did not store them, the
# controls of `assay check`, rules, studies and the zoo.
MAY_NAME = (
    "suite/defaults.py", "units/usual.py", "plugins/questions.py", "answers/refutation.py",
    "conformance/", "studies/", "training/zoo",
)  # fmt: skip
# A method's or protocol's formula may be made of these kinds, as an option's value.
PARTS = {"methods": ("fill", "units"), "protocols": ("fill", "units")}
# Names that are also other words, by the folder or root file where they are used as such.
MEAN = {"mean": "the arithmetic mean: a column, a reduction, an image's normalisation"}
FAMILY = {"given": "the family of methods that live in this process only"}
KINDS = {"random": "a kind of control"}
MAPS = {"maps": "the array of attribution maps in a file, and their keys in a manifest"}
NOISE = dict.fromkeys(("smoothgrad", "smoothgrad_sq", "vargrad"), "a kind of noise")
REDUCTIONS = dict.fromkeys(("completeness", "soundness"), "a set-level reduction")
OTHER_WORDS: dict[str, dict[str, str]] = {
    "aggregation": {"residual": "what a model of scores leaves unexplained"},
    "__init__": {"completeness": "the public name of a promise"},
    "answers": MEAN | FAMILY,
    "api": {"maps": "the argument `maps` of `score`, as the label in its messages"},
    "commands": MEAN | {"grid": "an option of a protocol"},
    "data": {"given": "class numbers that the data give"},
    "environments": {"uniform": "weights that are all alike"},
    "methods": FAMILY | NOISE | {
        "cam": "the family",
        "constant": "a border of torch's padding",
        "grid": "the option of the control `random`",
        "zero": "a rule of layer-wise relevance propagation",
    },
    "models": MEAN | {"pad": "a module of the network"},
    "plan": MEAN | FAMILY | MAPS,
    "plugins": MEAN | KINDS | dict.fromkeys(("parts", "bcos", "bagnet"), "a need"),
    "protocols": {
        "completeness": "one of the part checks", "shuffled": "a curve",
        "random": "masks that are drawn at random",
    },
    "ranking": MEAN | KINDS | REDUCTIONS | {"grid": "an option of a protocol, on cards too"},
    "report": MEAN | KINDS | MAPS | {
        "grey": "a line's style", "grid": "a line's class", "rect": "an SVG element",
        "zero": "a mark of a chart",
    },
    "results": MEAN | MAPS,
    "run": MAPS,
    "store": MEAN | MAPS,
    "suite": MEAN | NOISE,
    "training": {"bcos": "a capability of a network", "grid": "a field of a card"},
    "types": {"given": "class numbers that the data give"}
    | dict.fromkeys(("bcos", "bagnet"), "a capability of a network"),
}  # fmt: skip

BUILTIN = [p for kind in registry.TYPES for p in registry.everything(kind) if not p.own]
NAMES: dict[str, set[str]] = {}  # with the kinds of plug-in that have the name
for plugin in BUILTIN:
    NAMES.setdefault(plugin.name, set()).add(plugin.kind)
FILES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if not path.relative_to(SOURCE).as_posix().startswith(MAY_NAME)
]


def own_names(module: str) -> set[str]:
    """The plug-ins that a module registers itself."""
    return {plugin.name for plugin in BUILTIN if plugin.function.__module__ == module}


def excused(tree: ast.Module) -> Iterator[ast.AST]:
    """Docstrings, decorators, defaults of options, and calls that register a preset."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.FunctionDef):
            for part in (*node.decorator_list, *filter(None, node.args.kw_defaults)):
                yield from ast.walk(part)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "preset":
            yield from ast.walk(node)


def compared(tree: ast.Module) -> set[int]:
    """The nodes that are compared with something."""
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    return {id(part) for test in tests for part in ast.walk(test)}


def named(source: str, path: Path) -> list[str]:
    """The plug-ins that a file names in code that is not excused, with the line."""
    tree = ast.parse(source)
    place = path.relative_to(SOURCE)
    folder = place.parts[0].removesuffix(".py")
    mine = own_names(f"assay.{place.with_suffix('').as_posix().replace('/', '.')}")
    free, decided = {id(node) for node in excused(tree)}, compared(tree)
    return [
        f"{place}:{node.lineno} {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in NAMES
        and node.value not in mine
        and node.value not in OTHER_WORDS.get(folder, {})
        and id(node) not in free
        and not (NAMES[node.value] & set(PARTS.get(folder, ())) and id(node) not in decided)
    ]


def test_no_plugin_is_named() -> None:
    found = [line for path in FILES for line in named(path.read_text(), path)]
    assert not found, (
        f"{', '.join(found)}: declare a fact of the plug-in and ask for it, or put a default into "
        f"suite/defaults.py. Where the word means something else, add it to OTHER_WORDS."
    )


def test_a_new_name_is_noticed() -> None:
    """The rule sees a comparison, a default outside a signature, and nothing in a docstring."""
    path = SOURCE / "plan" / "plan.py"
    assert named('if pick(fill)[0] == "noisy_linear": pass', path) == [
        "plan/plan.py:1 noisy_linear"
    ]
    assert named('METHODS = ["gradcam"]', path)
    assert not named('def f(*, fill="blur"):\n    """gradcam"""', path)
    method = SOURCE / "methods" / "perturbation.py"
    assert not named('units = units or "elements"', method)
    assert named('units == "elements"', method)
