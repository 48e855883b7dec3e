"""May a run go on in its folder? Versions of keys and random numbers; weights and data."""

from assay.errors import InputError, warn
from assay.plan.plan import IDENTITY, Plan
from assay.store import Manifest, Store
from assay.types.hashing import own_classes
from assay.types.random_numbers import DRAWS


def identity_of(earlier: Manifest | None, store: Store) -> int:
    """The version of the keys in a folder: a resumed run keeps its version."""
    version = IDENTITY if earlier is None else earlier.identity
    if not 1 <= version <= IDENTITY:
        raise InputError(
            f"Expected a run with keys of version 1 to {IDENTITY} in `{store.folder}`, got "
            f"{version}: a newer version of assay wrote it. Use that version, or another folder."
        )
    return version


def check_draws(earlier: Manifest, store: Store) -> None:
    """Say that results of other random numbers are computed again: their keys no longer hold.

    Raises:
        InputError: A newer version of assay drew them.
    """
    if earlier.draws > DRAWS:
        raise InputError(
            f"Expected a run with random numbers of version 1 to {DRAWS} in `{store.folder}`, got "
            f"{earlier.draws}: a newer version of assay wrote it. Use that version, or another "
            f"folder."
        )
    if earlier.draws < DRAWS:
        warn(
            f"The run in `{store.folder}` has random numbers of version {earlier.draws}; this "
            f"version of assay draws those of version {DRAWS}. All its results are computed again."
        )


def check_unchanged(plan: Plan, earlier: Manifest, store: Store) -> None:
    """Raise an error if a model or dataset of an earlier run has changed its content."""
    if plan.identity == 1:
        _check_torch_alone(plan, store)
    weights = {name: entry.weights_hash for name, entry in earlier.models.items()}
    data = {name: entry.fingerprint for name, entry in earlier.datasets.items()}
    for name, model in plan.models.items():
        _check_same("weights of model", name, weights.get(name), model.weights_hash, store)
    for name, dataset in plan.datasets.items():
        _check_same("data of dataset", name, data.get(name), dataset.fingerprint, store)


def _check_same(what: str, name: str, before: str | None, now: str, store: Store) -> None:
    if before and before != now:
        raise InputError(
            f"The {what} `{name}` changed since the run in `{store.folder}` began "
            f"(expected {before}, got {now}). "
            f"Use another folder, or another name: `as: NAME` in a suite, `name=` in `assay.model`."
        )


def _check_torch_alone(plan: Plan, store: Store) -> None:
    """Raise an error if a run of version 1 has modules that are not torch's own.

    Only the hashes of torch's modules are the same in both versions. The keys of a user's own
    methods, protocols, fills and tokenizers changed: their cells are computed again and replace
    the old ones in the tables, which list cells by these keys.
    """
    for name, model in plan.models.items():
        own = own_classes(model.net)
        if own:
            raise InputError(
                f"The run in `{store.folder}` cannot be resumed: it has keys of version 1, which "
                f"depended on the source text of the network's classes, comments included, and "
                f"model `{name}` has classes that are not torch's own "
                f"({', '.join(f'`{kind}`' for kind in own)}). Its finished cells can still be "
                f"read, ranked and reported. Use a new folder to run the suite again."
            )
