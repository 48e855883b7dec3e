"""The answers of the model when everything is absent: how far can an intervention move them?"""

from collections.abc import Iterable, Mapping

from assay.engine.engine import Engine
from assay.errors import InputError, NotApplicable
from assay.plan.plan import Plan, Shard
from assay.plugins.identity import canonical, identity
from assay.removal import FillChoice
from assay.store import Array
from assay.store.all_absent import AllAbsent, fill_text
from assay.store.pieces import AllAbsentPiece
from assay.suite.spec import Choice, choose_one
from assay.types import Response


def fills_of(plan: Plan, shard: Shard, protocols: Iterable[Choice]) -> Mapping[str, FillChoice]:
    """The fills of the protocols that apply, by the key of their answers.

    A fill that is code of a user runs only inside of the user's protocols: it may hang.
    """
    fills: dict[str, FillChoice] = {}
    for protocol in protocols:
        fill = protocol.options.get("fill")
        if fill is not None and not plan.missing(shard, protocol) and not _own(fill):
            fills.setdefault(_key(plan, shard, fill), fill)
    return fills


def emptied_answers(
    plan: Plan, shard: Shard, engine: Engine, fill: FillChoice
) -> AllAbsentPiece | None:
    """The answers with a fill in place of everything; None where it does not apply to the data.

    Protocols with this fill then say why.
    """
    try:
        absent = engine.all_absent(fill)
    except (NotApplicable, InputError):
        return None
    answers = AllAbsent(fill_text(canonical(fill)), *_numbers(engine.clean), *_numbers(absent))
    return AllAbsentPiece(shard.id, _key(plan, shard, fill), answers)


def _numbers(response: Response) -> list[Array]:
    return [response.logit[:, 0].cpu().numpy(), response.log_prob[:, 0].cpu().numpy()]


def _key(plan: Plan, shard: Shard, fill: FillChoice) -> str:
    what = canonical(fill) if hasattr(fill, "shape") else choose_one("fill", fill).key
    return plan.responses_key(shard, f"all absent {identity(what)}")


def _own(fill: FillChoice) -> bool:
    return not hasattr(fill, "shape") and choose_one("fill", fill).own
