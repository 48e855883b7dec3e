"""What there is: plug-ins and suites, with what each needs and costs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from assay.commands.allowed import COMMON, allowed_values
from assay.errors import unknown
from assay.plugins.needs import NEEDS

KINDS = {
    "methods": "method",
    "protocols": "protocol",
    "models": "model",
    "datasets": "dataset",
    "environments": "environment",
    "fills": "fill",
    "units": "units",
}


# What is not said of an entry as a fact: it has its own place, or is for programs.
UNSAID = ("name", "title", "version", "summary", "options", "allowed", "required", "common")

LIBRARIES = (
    {"name": "timm:NAME", "summary": "A network of timm (extra `vision`)."},
    {"name": "torchvision:NAME", "summary": "A network of torchvision (extra `vision`)."},
    {"name": "hf:FOLDER", "summary": "A classifier that transformers saved (extra `text`)."},
)


def rows_of(what: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row per suite, or per plug-in of a kind; only those of these names, if any are given.

    Raises:
        InputError: There is none of such a name.
    """
    rows = _suites() if what == "suites" else _plugins(KINDS[what])
    there = {row["name"]: row for row in rows}
    for name in names:
        if name not in there:
            raise unknown(what.removesuffix("s"), name, there)
    return [there[name] for name in names] or rows


def print_methods(console: Console, rows: list[dict[str, Any]]) -> None:
    """A table of methods by family, controls last; it fits into 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("method, citation", "family", "needs"):
        table.add_column(column, no_wrap=column != "needs")
    for column in ("forward", "backward"):
        table.add_column(column, justify="right")
    by_family = sorted(rows, key=lambda row: (row["family"], row["name"]))
    controls = [row for row in by_family if row["control"]]
    for row in [row for row in by_family if not row["control"]] + controls:
        if controls and row is controls[0]:
            table.add_row("\n[bold]controls[/bold]")
        cite = f"\n  [dim]{escape(row['cite'])}[/dim]" if row["cite"] else ""
        needs = ", ".join(row["needs"]) or "nothing"
        cost = cost_of(row)
        table.add_row(
            f"{escape(row['name'])}{cite}", row["family"], needs, cost["forward"], cost["backward"]
        )
    console.print(table, highlight=False)
    console.print(
        f"\n{len(rows) - len(controls)} methods and {len(controls)} controls; passes through the "
        f"network a sample, at the default options. What one does, and its options: "
        f"assay list methods NAME",
        markup=False, highlight=False,
    )  # fmt: skip
    needed = {need for row in rows for need in row["needs"]}
    for need, words in NEEDS.items():
        if need in needed:
            text = Padding(escape(f"{need}: {words}"), (0, 0, 0, 2), expand=False)
            console.print(text, style="dim", highlight=False)


def cost_of(row: dict[str, Any]) -> dict[str, str]:
    """A method's passes, in numbers, or in words where they depend on the network."""
    said = {
        way: row["by"] if row[way] is None else f"{row[way]:,}" for way in ("forward", "backward")
    }
    once = f" + {row['once']:,} once" if row["once"] else ""
    return {**said, "forward": said["forward"] + once}


def print_entries(console: Console, rows: list[dict[str, Any]]) -> None:
    """Each with what it does, what is known about it, and its options."""
    for row in rows:
        console.print(
            f"[bold]{escape(row['name'])}[/bold]  {escape(row['summary'])}", highlight=False
        )
        shown = {**row, **(cost_of(row) if "by" in row else {})}
        facts = [
            f"{key.replace('_', ' ')}: {', '.join(map(str, v)) if isinstance(v, list) else v}"
            for key, v in shown.items()
            if v not in ("", [], {}) and key not in (*UNSAID, "by", "once")
        ]
        told, allowed = row.get("options", {}), row.get("allowed", {})
        options = [
            (f"{name}={json.dumps(told[name])}" if name in told else f"{name}, required")
            + (f" ({allowed[name]})" if allowed.get(name) else "")
            for name in {**dict.fromkeys(row.get("required", ())), **told}
        ]
        common = [f"{name}: {words}" for name, words in row.get("common", {}).items()]
        for line in (facts, options, common):
            if line:
                text = Padding(escape("; ".join(line)), (0, 0, 0, 4), expand=False)
                console.print(text, style="dim", highlight=False)


def _suites() -> list[dict[str, Any]]:
    from assay.suite.spec import read_suite, suites

    return [{"name": name, "summary": read_suite(name).title} for name in suites()]


def _passes(plugin: Any) -> Any:
    """What a method costs at its defaults; an own one may not say."""
    from assay.plugins.registry import Method, Passes
    from assay.suite.spec import choose_one

    if plugin.own and plugin.passes is Method.passes:
        return Passes(None, None, by="not said")
    if plugin.options.keys() <= plugin.defaults.keys():
        return choose_one("method", plugin.name).passes
    return plugin.passes(plugin.defaults)


def _plugins(kind: str) -> list[dict[str, Any]]:
    from assay.plugins import registry

    rows = []
    for plugin in registry.everything(kind):
        row: dict[str, Any] = {
            "name": plugin.name,
            "title": plugin.title,
            "version": plugin.version,
        }
        if kind in ("method", "protocol"):
            needs = sorted(plugin.required(plugin.defaults))
            family = plugin.family or ("own" if plugin.own else "")
            row |= {"family": family, "cite": plugin.cite, "needs": needs}
        if kind == "environment":
            row |= {"family": plugin.family, "cite": plugin.cite}
        if kind == "method":
            row |= {**asdict(_passes(plugin)), "control": plugin.control}
            del row["finding"]  # known only under a model
        if kind == "protocol":
            row |= {
                "metric": plugin.metric, "better": "higher" if plugin.higher_is_better else "lower",
                "range": [str(v) for v in plugin.range], "chance": str(plugin.chance),
                "uses": plugin.uses, "sign_sensitive": plugin.signs_matter(plugin.defaults),
            }  # fmt: skip
        options = registry.canonical({**plugin.defaults, **plugin.preset})
        row |= {
            "options": options, "allowed": allowed_values(plugin), "summary": plugin.summary,
            "required": [n for n in plugin.options if n not in options],
        }  # fmt: skip
        if kind == "method":
            row["common"] = {name: COMMON[name] for name in (*plugin.common, "label")}
        rows.append(row)
    return rows + [dict(row) for row in LIBRARIES] if kind == "model" else rows
