"""Cells of set protocols: one method under one protocol on all samples of a dataset."""

from dataclasses import dataclass

from assay.methods.attribution import MAPS_HASH
from assay.plan.plan import Plan, Shard
from assay.suite.spec import Choice


@dataclass(frozen=True)
class SetCell:
    """One method under one set protocol, for one dataset, model and seed."""

    dataset: str
    model: str
    seed: int
    method: Choice
    protocol: Choice

    @property
    def place(self) -> tuple[str, str, int]:
        """Dataset, model and seed."""
        return self.dataset, self.model, self.seed


def set_cells(plan: Plan) -> list[SetCell]:
    """All cells of set protocols, in the order of the suite."""
    return [
        SetCell(dataset, model, seed, method, protocol)
        for dataset, model in plan.pairs
        for seed in plan.spec.seeds
        for protocol in plan.set_protocols
        for method in plan.methods
    ]


def unmet(plan: Plan, cell: SetCell) -> list[str]:
    """The needs of a cell's method and protocol that the model and the data do not meet."""
    shard = plan.shards_of(*cell.place)[0]
    return plan.missing(shard, cell.method) or plan.missing(shard, cell.protocol)


def applicable_sets(plan: Plan) -> list[SetCell]:
    """The cells of set protocols whose method and protocol apply."""
    return [cell for cell in set_cells(plan) if not unmet(plan, cell)]


def explains_split(cell: SetCell, split: str) -> bool:
    """Whether a cell reads maps of a split that its method can make.

    Maps computed elsewhere exist only for the samples they were computed for.
    """
    if not split:
        return True
    needs = cell.protocol.plugin.required(cell.protocol.options)
    return "training" in needs and MAPS_HASH not in cell.method.options


def reads_maps(plan: Plan, cell: SetCell, shard: Shard) -> bool:
    """Whether a cell reads the maps of a shard."""
    return (
        (cell.dataset, cell.seed) == (shard.dataset, shard.seed)
        and shard.model in plan.pool(cell.dataset, cell.model, cell.protocol)
        and explains_split(cell, shard.split)
    )
