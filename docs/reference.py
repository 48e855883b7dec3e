"""The reference pages, made from the registry whenever the site is built; none is stored."""

import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import click
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import assay
from assay.commands.listing import Listed, cost_of, rows_from_code
from assay.plugins import registry
from assay.plugins.registry import Plugin
from assay.ranking.replicates import FEWEST_REPLICATES
from assay.suite.spec import Spec

HERE = Path(__file__).parent
REFERENCES: dict[str, dict[str, str]] = yaml.safe_load((HERE / "references.yml").read_text())

# Families in the order a reader meets them, with the heading of their page.
TITLES = {
    "method": {
        "gradients": "Gradients",
        "relevance": "Relevance",
        "cam": "Class activation maps",
        "perturbation": "Perturbation",
        "bottleneck": "Bottlenecks",
        "attention": "Attention",
        "intrinsic": "Networks that explain themselves",
        "elsewhere": "Maps computed elsewhere",
        "crafted": "Crafted rivals",
        "controls": "Controls",
    },
    "protocol": {
        "curves": "Curves",
        "single": "Single deletion",
        "subsets": "Random sets and windows",
        "parts": "Painted parts",
        "retraining": "Retraining",
        "truth": "Known truth",
    },
    "environment": {
        "designed": "Designed networks",
        "painted": "Painted parts",
        "planted": "Planted features",
    },
}
TEXTS = {
    "method": "Every method also has the options `reduce` (how channels become one number: `sum`, "
    "`abs_sum`, `sum_abs`, `square`, `none`) and `abs`. The cost is the number of network passes "
    "for one sample.",
    "protocol": "Range and chance are those of the default options. If chance is *measured*, it is "
    "not known from theory: compare a method with the controls. The four properties are those of "
    "[IDSDS](../reference/literature.md#hesse2024), Table 1. Models are compared only by protocols "
    "that are *inter model*: see [compare models](../how_to/compare_models.md).",
    "fill": "A fill replaces absent units. Write `fill: blur`, or `fill: {blur: {sigma: 5}}`. In "
    "Python a fill can also be a tensor.",
    "units": "Units are removed as a whole. Write `units: slic`, or `units: {grid: {side: 7}}`.",
    "environment": "An environment is a network made together with its samples, so that the ground "
    "truth is known. `assay.environment(name)` has `.model`, `.dataset`, `.batch(n)`, the bare "
    "network `.net` and a `.card`. Use it as `assay.benchmark(env.model, env.dataset)`, or list it "
    "under `environments:` in a suite. The ground truth belongs to `.model`, not to `.net`. For "
    "example, the model of `multi_color_sum` explains the contrast of its logits, which `.net` "
    "does not return. With `benchmark(env.net, env.dataset)`, maps of one output would be compared "
    "with the ground truth of another. See "
    "[build your own environment](../how_to/own_environment.md).",
    "dataset": "Give these names under `datasets:` of a suite or as `--data`. See "
    "[use your own data](../how_to/own_data.md).",
    "model": "Give these names under `models:` of a suite or as `--model`. See "
    "[use your own model](../how_to/own_model.md).",
}
HEADED = ("Formula", "Differs from the paper")  # paragraphs set off in bold
USES = {"order": "its order", "value": "its values", "support": "where it is not zero"}
SECTIONS = {"methods": "Methods", "protocols": "Protocols", "environments": "Environments"}
KINDS = {"fill": "Fills", "units": "Units", "dataset": "Datasets", "model": "Models"}


# --- what mkdocs calls ----------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference after the written pages."""
    by_section: dict[str, list[dict[str, str]]] = {}
    for address, text in pages().items():
        title = text.partition("\n")[0].removeprefix("# ")
        section = SECTIONS.get(address.split("/")[1], "")
        by_section.setdefault(section, []).append({title: address})
    nested = [{section: inside} for section, inside in by_section.items() if section]
    config.nav = [*(config.nav or []), {"Reference": [*nested, *by_section.get("", [])]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, which exist in memory only."""
    for address, text in pages().items():
        files.append(File.generated(config, address, content=text))
    return files


# --- the pages ------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Every page by its address below `docs/`."""
    made = {}
    for kind in ("protocol", "method", "environment"):
        for family, plugins in _families(kind).items():
            title = TITLES[kind].get(family, family.capitalize())
            made[f"reference/{kind}s/{family}.md"] = _page(title, kind, plugins)
    for kind, title in KINDS.items():
        made[f"reference/{kind.removesuffix('s')}s.md"] = _page(title, kind, _plugins(kind))
    return made | {
        "reference/gallery.md": _gallery(),
        "reference/suite.md": _suite(),
        "reference/command_line.md": _command_line(),
        "reference/python.md": _python(),
        "reference/literature.md": _literature(),
    }


def _gallery() -> str:
    """All methods on the same photographs, as `make gallery` drew them."""
    parts = [
        "# Gallery",
        "Every method at its default options on the same four photographs. It explains "
        "EfficientNet-Lite0. Where it needs another kind of network, or 1,000 passes or more, it "
        "explains a small network at 32 pixels. The class explained is the predicted one. Red "
        "supports it, blue opposes it. Each map is scaled to its own largest value, so strengths "
        "cannot be compared between maps. A pretty map need not be a faithful one: faithfulness "
        "is measured.",
        "![The photographs](../images/gallery/photographs.jpg)",
    ]
    for family, plugins in _families("method").items():
        drawn = [p for p in plugins if (HERE / "images" / "gallery" / f"{p.name}.jpg").exists()]
        rows = [
            f"| [{p.title}](methods/{family}.md#{p.name}) | "
            f"![{p.title}](../images/gallery/{p.name}.jpg) |"
            for p in drawn
        ]
        if rows:
            title = TITLES["method"].get(family, family.capitalize())
            parts += [f"## {title}", "\n".join(["| method | map |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _plugins(kind: str) -> list[Plugin]:
    return [plugin for plugin in registry.everything(kind) if not plugin.own]


def _families(kind: str) -> dict[str, list[Plugin]]:
    families: dict[str, list[Plugin]] = defaultdict(list)
    for plugin in _plugins(kind):
        families[plugin.family].append(plugin)
    known = [family for family in TITLES[kind] if family in families]
    return {family: families[family] for family in [*known, *sorted(families.keys() - known)]}


def _page(title: str, kind: str, plugins: Sequence[Plugin]) -> str:
    up = "../" if kind in TITLES else ""
    text = TEXTS[kind].replace("(../", f"(../{up}")
    return "\n\n".join([f"# {title}", text, *(_entry(plugin, up) for plugin in plugins)]) + "\n"


def _entry(plugin: Plugin, up: str) -> str:
    facts = [f"- **{term}:** {value}" for term, value in _facts(plugin, up)]
    prose, explained = _split(plugin.description)
    parts = [f"## {plugin.name}", f"*{plugin.title}.* {_prose(prose)}", "\n".join(facts)]
    return "\n\n".join([part for part in [*parts, _options(plugin, explained, up)] if part])


def _facts(plugin: Plugin, up: str) -> list[tuple[str, str]]:
    cites = [_cited(key, up) for key in keys_of(plugin)]
    facts: list[tuple[str, str]] = []
    if isinstance(plugin, registry.Protocol):
        low, high = (f"{value:g}" for value in plugin.range)
        facts += [
            ("Metric", f"`{plugin.metric}`, {'higher' if plugin.higher_is_better else 'lower'} "
             "is better"),
            ("Range", f"{low} to {high}"),
            ("Question", plugin.question),
            ("Chance", plugin.chance if plugin.chance == "measured" else f"{plugin.chance:g}"),
            ("Uses of a map", f"{USES[plugin.uses]}; signs "
             f"{'matter' if plugin.signs_matter(plugin.defaults) else 'do not matter'}"),
            ("Properties", plugin.guarantees(plugin.defaults).in_words),
        ]  # fmt: skip
        facts += [("Scope", "all samples at once")] if plugin.scope == "set" else []
        unranked, names = plugin.unranked(plugin.defaults), plugin.replicates(plugin.defaults)
        facts += [("Ranked", f"no: {unranked}")] if unranked else []
        if names and not unranked:
            facts += [
                (
                    "Ranked",
                    f"from {FEWEST_REPLICATES} replicates on; by default there are "
                    f"{len(names)}, `{names[0]}` to `{names[-1]}`",
                )
            ]
    if isinstance(plugin, registry.Method):
        row = _listed_methods()[plugin.name]
        forward, backward = cost_of(row)
        facts += [("Passes", f"{forward} forward, {backward} backward")]
        facts += [("Control", row["control"].replace("_", "-"))] if row["control"] else []
    if isinstance(plugin, registry.Method | registry.Protocol):
        needs = sorted(plugin.required(plugin.defaults))
        facts += [("Needs", ", ".join(f"`{need}`" for need in needs))] if needs else []
    return facts + ([("Source", "; ".join(cites))] if cites else [])


@functools.cache
def _listed_methods() -> dict[str, Listed]:
    """The rows of `assay list methods`, by name."""
    return {row["name"]: row for row in rows_from_code("methods")}


def _options(plugin: Plugin, explained: dict[str, str], up: str) -> str:
    """The options with their defaults, and what the docstring or the type says about each."""
    defaults = {**plugin.defaults, **plugin.preset}
    names = [*plugin.options, *(n for n in plugin.preset if n not in plugin.options)]
    if not names:
        return ""
    lines = ["| option | default | |", "|---|---|---|"]
    for name in names:
        value = f"`{_shown(defaults[name])}`" if name in defaults else "required"
        lines.append(f"| `{name}` | {value} | {explained.get(name) or _values(plugin, name, up)} |")
    return "\n".join(lines)


def _values(plugin: Plugin, name: str, up: str) -> str:
    """The values that an option accepts, where they can be listed."""
    kind = plugin.nested().get(name)
    if kind == "method":
        return "a method"
    if kind is not None:
        return f"[{kind}]({up}{kind.removesuffix('s')}s.md)"
    types = [plugin.options[name].annotation] if name in plugin.options else []
    values = []
    while types:
        one = types.pop(0)
        if get_origin(one) is Literal:
            values += [f"`{value}`" for value in get_args(one)]
        elif get_origin(one) in (Union, UnionType):
            types += get_args(one)
    return ", ".join(values)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_shown(v) for v in value) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value) or '""'


# --- docstrings -----------------------------------------------------------------------------------


def _split(docstring: str) -> tuple[list[str], dict[str, str]]:
    """The paragraphs of a docstring, and what its `Args` or `Attributes` say about each name."""
    prose, _, rest = docstring.replace("\n\nAttributes:\n", "\n\nArgs:\n").partition("\n\nArgs:\n")
    arguments = re.split(r"\n\n(?:Returns|Raises):\n", rest)[0]
    pairs = re.findall(r"^ {4}(\*{0,2}\w+): (.*?)(?=^ {4}\S|\Z)", arguments, flags=re.S | re.M)
    explained = {name: " ".join(text.split()) for name, text in pairs}
    prose = re.split(r"\n\n(?:Returns|Raises):\n", prose)[0]
    return [" ".join(part.split()) for part in prose.split("\n\n")], explained


def _prose(paragraphs: Iterable[str]) -> str:
    made = []
    for paragraph in paragraphs:
        first, colon, rest = paragraph.partition(": ")
        marked = colon and first in HEADED
        made.append(f"**{first}:** {rest}" if marked else paragraph)
    return "\n\n".join(made)


# --- literature -----------------------------------------------------------------------------------


def keys_of(plugin: Plugin) -> list[str]:
    """The keys a plug-in cites, in `cite` and in brackets in its docstring."""
    inside = re.findall(r"\(([a-z]+\d{4}[a-z0-9]*)\)", plugin.description)
    return [key.strip() for key in plugin.cite.split(",") if key.strip()] + inside


def _cited(key: str, up: str) -> str:
    if key not in REFERENCES:
        raise KeyError(f"Add `{key}`, which a plug-in cites, to docs/references.yml.")
    about = REFERENCES[key]
    link = f"[{about['title']}]({up}literature.md#{key})"
    authors = about["authors"].split(", ")
    named = " and ".join(authors) if len(authors) < 3 else f"{authors[0]} et al."
    return f"{named}, {link}, {about['venue']}"


def _literature() -> str:
    lines = [
        f'<a id="{key}"></a>**{key}** {about["authors"]}: [{about["title"]}]({about["link"]}). '
        f"{about['venue']}."
        for key, about in sorted(REFERENCES.items())
    ]
    return "\n\n".join(["# Literature", *lines]) + "\n"


# --- suite, command line, Python ------------------------------------------------------------------


def _suite() -> str:
    source = inspect.getsource(Spec)
    lines = ["| field | default | |", "|---|---|---|"]
    for name, field in Spec.model_fields.items():
        said = re.search(rf'^    {name}: .*\n    """(.*?)"""', source, flags=re.M)
        default = "required" if field.is_required() else f"`{_shown(field.default)}`"
        lines.append(f"| `{field.alias or name}` | {default} | {said[1] if said else ''} |")
    demo = (Path(assay.__file__).parent / "suite" / "ready" / "demo.yaml").read_text()
    text = (
        "A suite is a YAML file that defines a run. An item is a name, or "
        "`{name: {option: value}}`. The key `as:` sets the name in the tables. Wherever a "
        "name is expected, you can give `./file.py:object` or `package.module:object`. A suite "
        "runs files in its own folder; other code needs `--trust-code`."
    )
    parts = ["# Suites", text, "\n".join(lines), "The suite of `assay demo`:"]
    return "\n\n".join([*parts, f"```yaml\n{demo}```"]) + "\n"


def _command_line() -> str:
    """The help of every command, from the commands themselves."""
    import typer

    from assay.cli import app

    command = typer.main.get_group(app)
    codes = (
        "Exit codes: 0 if no cell failed; 2 for a usage error; 3 if at least one cell failed; 130 "
        "if the command was interrupted. Cells that are not applicable, circular, degenerate or "
        "compared with an upper-bound truth have not failed."
    )
    parts = ["# Command line", codes]
    for name, sub in command.commands.items():
        arguments = [p for p in sub.params if p.param_type_name == "argument"]
        places = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments]
        lines = ["| | default | |", "|---|---|---|"]
        for param in sub.params:
            spelled = ", ".join(f"`{o}`" for o in param.opts) if param not in arguments else ""
            off = "".join(f", `{o}`" for o in param.secondary_opts)
            default = _default(param)
            shown = spelled or f"`{param.name.upper()}`"
            lines.append(f"| {shown}{off} | {default} | {(param.help or '').replace('|', '/')} |")
        usage = f"```text\nassay {' '.join([name, *places])} [OPTIONS]\n```"
        parts += [f"## assay {name}", _prose(_split(inspect.cleandoc(sub.help))[0]), usage]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _default(param: click.Parameter) -> str:
    if param.required:
        return "required"
    if param.default is None or param.default is False:
        return ""
    return "yes" if param.default is True else f"`{param.default}`"


def _python() -> str:
    parts = ["# Python", "The public names of `import assay`. All other names may change."]
    for name in assay.__all__:
        public = getattr(assay, name)
        paragraphs, explained = _split(inspect.getdoc(public) or "")
        parts += [f"## assay.{name}", _prose(paragraphs)]
        if inspect.isfunction(public):
            parameters = inspect.signature(public).parameters.values()
            call = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)
            parts.insert(-1, f"```text\nassay.{name}({call})\n```")
        rows = [f"| `{argument}` | {text} |" for argument, text in explained.items()]
        parts += ["\n".join(["| argument | |", "|---|---|", *rows])] if rows else []
    return "\n\n".join(parts) + "\n"
