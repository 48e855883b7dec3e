"""What there is: plug-ins and suites, with what each needs and costs."""

from typing import Any

KINDS = {
    "methods": "method",
    "protocols": "protocol",
    "models": "model",
    "datasets": "dataset",
    "fills": "fill",
    "units": "units",
}


LIBRARIES = (
    {"name": "timm:NAME", "summary": "A network of timm (extra `vision`)."},
    {"name": "torchvision:NAME", "summary": "A network of torchvision (extra `vision`)."},
    {"name": "hf:FOLDER", "summary": "A classifier that transformers saved (extra `text`)."},
)


def rows_of(what: str) -> list[dict[str, Any]]:
    """One row per suite, or per plug-in of a kind."""
    return _suites() if what == "suites" else _plugins(KINDS[what])


def _suites() -> list[dict[str, Any]]:
    from assay.spec import read_suite, suites

    return [{"name": name, "summary": read_suite(name).title} for name in suites()]


def _plugins(kind: str) -> list[dict[str, Any]]:
    from assay import registry
    from assay.spec import choose_one

    rows = []
    for plugin in registry.everything(kind):
        row: dict[str, Any] = {
            "name": plugin.name,
            "title": plugin.title,
            "version": plugin.version,
        }
        if kind in ("method", "protocol"):
            needs = sorted(plugin.required(plugin.defaults))
            row |= {"family": plugin.family, "cite": plugin.cite, "needs": needs}
        if kind == "method":
            said = plugin.options.keys() <= plugin.defaults.keys()
            passes = (
                choose_one("method", plugin.name).passes if said else plugin.passes(plugin.defaults)
            )
            row |= {
                "forward": passes.forward,
                "backward": passes.backward,
                "control": plugin.control,
            }
        if kind == "protocol":
            row |= {
                "metric": plugin.metric, "better": "higher" if plugin.higher_is_better else "lower",
                "range": [str(v) for v in plugin.range], "chance": str(plugin.chance),
                "uses": plugin.uses, "sign_sensitive": plugin.sign_sensitive,
            }  # fmt: skip
        options = registry.canonical({**plugin.defaults, **plugin.preset})
        rows.append({**row, "options": options, "summary": plugin.summary})
    return rows + [dict(row) for row in LIBRARIES] if kind == "model" else rows
