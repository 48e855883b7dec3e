"""The folder of a fine-tuning: weights, card, and the file from which it continues."""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save

from assay.errors import InputError, PrerequisiteError
from assay.models.carded import read_card
from assay.training.fine_tuning import FineTuning, beside_placebo, check_base
from assay.training.fitting import Recipe
from assay.training.trained_weights import copy_weights, write_whole
from assay.types import Card, Model
from assay.types.card import TRAINING_SAMPLES

PLACEBO = "placebo"  # the folder of the placebo arm


@dataclass(frozen=True)
class TunedFolder:
    """Where `assay finetune` stores its results. What is there is not computed again."""

    path: Path

    @property
    def weights(self) -> Path:
        """The weights of the fine-tuned network."""
        return self.path / "weights.safetensors"

    @property
    def card_file(self) -> Path:
        """Its card."""
        return self.path / "card.json"

    @property
    def samples(self) -> Path:
        """The hashes of the samples it was trained on."""
        return self.path / TRAINING_SAMPLES

    @property
    def resume(self) -> Path:
        """The state after the last finished epoch; removed at the end."""
        return self.path / "resume.safetensors"

    @property
    def card(self) -> Card | None:
        """The card, if the fine-tuning is finished."""
        done = self.card_file.is_file() and self.weights.is_file()
        return read_card(self.card_file) if done else None

    @property
    def begun(self) -> bool:
        """Whether it holds anything that was trained."""
        return any(place.exists() for place in (self.resume, self.weights, self.card_file))

    def claim(self, settings: dict[str, object]) -> None:
        """Write what is asked for, or check that the training in it has the same settings.

        Raises:
            InputError: The training has others, or `settings.json` is damaged.
            PrerequisiteError: It cannot be written to.
        """
        place = self.path / "settings.json"
        asked: dict[str, object] = json.loads(json.dumps(settings, default=str))
        try:
            stored = _settings(place)
            if stored is not None and set(stored) == set(asked) and not self.begun:
                stored = None  # nothing was trained with them
            if stored is None:
                write_whole(json.dumps(asked, indent=1).encode(), place)
        except OSError as error:
            raise PrerequisiteError(
                f"Cannot write `{place}`: {error.strerror or error}. Choose another folder with "
                f"`--out`."
            ) from error
        for name in asked:
            if stored is not None and stored.get(name) != asked[name]:
                raise InputError(
                    f"Expected `{self.path}` to hold a fine-tuning with `{name}` "
                    f"{asked[name]!r}, got one with {stored.get(name)!r}. Choose another folder "
                    f"with `--out`."
                )

    def missing(self, *, placebo: bool, seeds: bool) -> bool:
        """Whether something that is asked for is not stored yet."""
        card = self.card
        return (
            card is None
            or (placebo and card.placebo_mad_softmax is None)
            or (seeds and card.seeds_sha256 is None)
        )

    def check(self, model: Model, seeds: Model | None = None) -> None:
        """Reject other networks than those that the stored values are of.

        Raises:
            InputError: The network, or that of another seed, has other weights.
        """
        card = self.card
        if card is None:
            return
        check_base(card, model)
        given = None if seeds is None else seeds.weights_hash
        if None not in (given, card.seeds_sha256) and given != card.seeds_sha256:
            raise InputError(
                f"Expected the network of another seed that `{self.path}` was compared with "
                f"(weights {card.seeds_sha256}), got one with other weights ({given}). Give that "
                f"one again with `--seeds`, or choose another folder with `--out`."
            )

    def fill(
        self,
        task: FineTuning,
        recipe: Recipe,
        *,
        probability: float = 0.5,
        seed: int = 0,
        half: bool = False,
        placebo: bool = False,
        seeds: Model | None = None,
    ) -> Card:
        """Fine-tune and compare with a placebo and another seed; what is stored stays.

        Raises:
            InputError: What is stored is of another network.
        """
        self.check(task.model, seeds)
        card = self.card or self._fit(task, recipe, probability, seed, half, placebo=False)
        if placebo and card.placebo_mad_softmax is None:
            beside = TunedFolder(self.path / PLACEBO)
            other = beside.card or beside._fit(task, recipe, probability, seed, half, placebo=True)
            card = beside_placebo(card, other)
            self._write(card)
        if seeds is not None and card.seeds_sha256 is None:
            card = task.beside_another_seed(card, seeds)
            self._write(card)
        return card

    def _fit(
        self,
        task: FineTuning,
        recipe: Recipe,
        probability: float,
        seed: int,
        half: bool,
        *,
        placebo: bool,
    ) -> Card:
        tuned, card = task.fit(
            recipe, probability=probability, seed=seed, half=half, placebo=placebo,
            checkpoint=self.resume,
        )  # fmt: skip
        write_whole(save(copy_weights(tuned.net)), self.weights)
        if card.training_hashes is not None and not placebo:
            write_whole(save({"hashes": card.training_hashes}), self.samples)
        self._write(card)
        self.resume.unlink(missing_ok=True)
        return card

    def _write(self, card: Card) -> None:
        write_whole(json.dumps(card.to_json(), indent=1).encode(), self.card_file)


def _settings(place: Path) -> dict[str, object] | None:
    """The stored settings; None where there are none yet."""
    if not place.is_file():
        return None
    try:
        stored = json.loads(place.read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise InputError(
            f"Expected `{place}` to hold the settings of a fine-tuning as JSON, got a damaged "
            f"file. Choose another folder with `--out`, or delete this one."
        )
    return stored
