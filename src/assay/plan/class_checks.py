"""Whether labels, targets and names of classes fit what a network outputs."""

from collections.abc import Iterable

from assay.data.classes import check_labels, check_names, check_target
from assay.errors import warn
from assay.plan.plan import Plan, Shard
from assay.types import Dataset, Model


def _warn_of_one_number(model: Model, dataset: Dataset) -> None:
    """Warn where only the labels could tell two classes from a regression, and there are none."""
    if model.binary and model.outputs == 2 and not dataset.labels:
        warn(
            f"Model `{model.name}` gives one number, read as the logit of the second of two "
            f"classes. Where it is a regression, give `assay.model(net, regression=True)`."
        )


def check_classes(plan: Plan, shards: Iterable[Shard]) -> None:
    """Check that the model has an output for every label, before anything is written.

    The model can only be right on labels that are among its classes, whatever the target is.
    """
    firsts = {(s.dataset, s.model, s.split): s for s in reversed([*shards])}
    for (dataset, model, _), shard in firsts.items():
        prepared = plan.ready(shard, plan.batch(shard, shard.samples[:1])).model
        if "regression" not in prepared.has:
            check_names(prepared.classes, model, prepared.outputs)
            _warn_of_one_number(prepared, plan.dataset_of(shard))
        check_target(plan.target(dataset, model), model, prepared.outputs)
        check_labels(plan.dataset_of(shard), model, prepared.outputs)
