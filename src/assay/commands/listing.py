"""The rows of `assay list`: plug-ins and suites, with what each needs and costs.

A packaged table holds the rows of everything built in, so that listing imports no plug-in and no
torch. Only listing reads it: whatever runs a plug-in reads its code. `make listing` writes the
table from the code, and a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Required, TypedDict

from assay.errors import unknown

if TYPE_CHECKING:
    from assay.plugins.registry import Method, Passes, Plugin, Protocol

KINDS = {
    "methods": "method",
    "protocols": "protocol",
    "models": "model",
    "datasets": "dataset",
    "environments": "environment",
    "fills": "fill",
    "units": "units",
}
SUITES = "suites"
TABLE = "listing.json"  # the packaged table, in this folder


class Listed(TypedDict, total=False):
    """A row as `--json` prints it; which fields it has depends on the kind."""

    name: Required[str]
    summary: Required[str]
    title: str
    version: int
    family: str
    cite: str
    needs: list[str]
    forward: int | None  # passes per sample; None where `by` says what decides
    backward: int | None
    by: str
    once: int
    control: str
    question: str
    metric: str
    better: str
    range: list[str]
    chance: str
    uses: str
    sign_sensitive: bool
    scope: str
    properties: dict[str, bool | str | None]
    options: dict[str, object]
    allowed: dict[str, str]
    required: list[str]
    common: dict[str, str]


# Options that the runner applies, with their values in words.
COMMON = {
    "reduce": "how channels become one number: sum, abs_sum, sum_abs, square or none",
    "abs": "whether the absolute value is taken last: true or false",
    "noise": "noisy copies, {kind: smoothgrad, smoothgrad_sq or vargrad, samples: 1 or more, "
    "sigma: above 0, relative: true or false}",
    "as": "its name in tables",
}
LIBRARIES: tuple[Listed, ...] = (
    {"name": "timm:NAME", "summary": "A network of timm (extra `vision`)."},
    {"name": "torchvision:NAME", "summary": "A network of torchvision (extra `vision`)."},
    {"name": "hf:FOLDER", "summary": "A classifier saved by transformers (extra `text`)."},
)


def rows_of(what: str, names: Sequence[str] = ()) -> list[Listed]:
    """One row per suite, or per plug-in of a kind; only those named, where names are given.

    Raises:
        InputError: There is no plug-in or suite of that name.
    """
    rows = packaged_rows()[what] if _all_packaged(what) else rows_from_code(what)
    if not {row["name"] for row in rows}.issuperset(names):
        rows = rows_from_code(what)  # where the two differ, the code is right
    by_name = {row["name"]: row for row in rows}
    for name in names:
        if name not in by_name:
            raise unknown(what.removesuffix("s"), name, by_name)
    return [by_name[name] for name in names] or rows


def packaged_rows() -> dict[str, list[Listed]]:
    """The packaged table: the rows of everything built in, by kind."""
    text = (resources.files("assay") / "commands" / TABLE).read_text(encoding="utf-8")
    table: dict[str, list[Listed]] = json.loads(text)
    return table


def rows_from_code(what: str) -> list[Listed]:
    """The rows of a kind as its code describes itself."""
    return _suites() if what == SUITES else list(_plugins(KINDS[what]))


def _all_packaged(what: str) -> bool:
    """Whether the table holds all of a kind: nothing registered here or by another package."""
    from assay.plugins import registry

    return what == SUITES or not registry.names(KINDS[what], builtin=False)


def cost_of(row: Listed) -> tuple[str, str]:
    """A method's forward and backward passes, in words where they depend on the network."""
    forward, backward = (
        row["by"] if count is None else f"{count:,}" for count in (row["forward"], row["backward"])
    )
    return forward + (f" + {row['once']:,} once" if row["once"] else ""), backward


def _suites() -> list[Listed]:
    from assay.suite.spec import suite_fields, suites

    return [{"name": name, "summary": suite_fields(name)[0]["title"]} for name in suites()]


def _plugins(kind: str) -> Iterator[Listed]:
    from assay.plugins import registry

    for plugin in registry.everything(kind):
        row: Listed = {
            "name": plugin.name,
            "title": plugin.title,
            "version": plugin.version,
            "summary": plugin.summary,
        }
        if isinstance(plugin, registry.Method):
            row |= _method(plugin)
        if isinstance(plugin, registry.Protocol):
            row |= _protocol(plugin)
        if isinstance(plugin, registry.EnvironmentFactory):
            row["family"], row["cite"] = plugin.family, plugin.cite
        options = registry.canonical({**plugin.defaults, **plugin.preset})
        row["options"], row["allowed"] = options, allowed_values(plugin)
        row["required"] = [name for name in plugin.options if name not in options]
        if kind == "method":
            row["common"] = {name: COMMON[name] for name in (*plugin.common, "as")}
        yield row
    if kind == "model":
        yield from LIBRARIES


def _method(plugin: Method) -> Listed:
    passes = _passes(plugin)
    return {
        **_judged(plugin),
        "forward": passes.forward,
        "backward": passes.backward,
        "by": passes.by,
        "once": passes.once,
        "control": plugin.control,
    }


def _protocol(plugin: Protocol) -> Listed:
    return {
        **_judged(plugin),
        "question": plugin.question,
        "metric": plugin.metric,
        "better": "higher" if plugin.higher_is_better else "lower",
        "range": [str(end) for end in plugin.range],
        "chance": str(plugin.chance),
        "uses": plugin.uses,
        "sign_sensitive": plugin.signs_matter(plugin.defaults),
        "scope": plugin.scope,
        "properties": plugin.guarantees(plugin.defaults).to_json(),
    }


def _judged(plugin: Plugin) -> Listed:
    """What methods and protocols have in common."""
    return {
        "name": plugin.name,
        "summary": plugin.summary,
        "family": plugin.family or ("own" if plugin.own else ""),
        "cite": plugin.cite,
        "needs": sorted(plugin.required(plugin.defaults)),
    }


def _passes(plugin: Method) -> Passes:
    """A method's cost at its defaults; the user's own may not declare it."""
    from assay.plugins.registry import Method, Passes
    from assay.suite.spec import choose_one

    if plugin.own and plugin.passes is Method.passes:
        return Passes(None, None, by="not said")
    if plugin.options.keys() <= plugin.defaults.keys():
        return choose_one("method", plugin.name).passes
    return plugin.passes(plugin.defaults)


def allowed_values(plugin: Plugin) -> dict[str, str]:
    """Each option with the values it accepts; empty where its type does not say."""
    from assay.plugins.options import in_words

    nested = plugin.nested()
    return {
        name: f"a {nested[name]}, by name or with options"
        if name in nested
        else in_words(option.annotation)
        for name, option in plugin.options.items()
    }
