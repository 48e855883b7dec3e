"""The control that every ranking needs: maps at random."""

from dataclasses import replace

from assay.plan.plan import Plan
from assay.plan.scoring import unranked
from assay.suite.defaults import RANDOM_CONTROL
from assay.suite.spec import choose_one

ADDED = (
    f"The control `{RANDOM_CONTROL}` was added: methods are compared with it. `controls: off` "
    f"leaves it out."
)


def with_random(plan: Plan) -> Plan:
    """The plan with the control `random`, if it ranks methods and has no such control yet."""
    controls = {method.plugin.control for method in plan.methods}
    ranks = any(p.plugin.judges != "model" and not unranked(p) for p in plan.protocols)
    control = choose_one("method", RANDOM_CONTROL)
    needed = ranks and "" in controls and control.plugin.control not in controls
    if plan.spec.controls == "off" or not needed:
        return plan
    taken = {method.label for method in plan.methods}
    name = RANDOM_CONTROL
    item = name if name not in taken else {name: {"as": f"{name} control"}}
    spec = plan.spec.model_copy(update={"methods": [*plan.spec.methods, item]})
    return replace(plan, spec=spec, methods=(*plan.methods, choose_one("method", item)))
