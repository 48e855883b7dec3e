"""A model with the card of its fine-tuning."""

import json
from dataclasses import replace
from pathlib import Path

from assay.errors import InputError, PrerequisiteError
from assay.paths import user_path
from assay.types import Model
from assay.types.card import IN_DOMAIN, Card


def read_card(path: str | Path) -> Card:
    """The card in a file that `assay finetune` wrote.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: It holds no card.
    """
    place = user_path(path, "`card`")
    try:
        stored = json.loads(place.read_text())
    except OSError:
        raise PrerequisiteError(
            f"Expected a card at `{path}`, found no such file. `assay finetune` writes it."
        ) from None
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise InputError(f"Expected `{path}` to hold the card of a fine-tuned network as JSON.")
    return Card.from_json(stored)


def with_card(model: Model, card: Card | str | Path) -> Model:
    """The model with a card of its own weights.

    Raises:
        InputError: The card belongs to other weights.
    """
    if isinstance(card, str | Path):
        card = read_card(card)
    if not isinstance(card, Card):
        raise InputError(f"Expected `card` to be a `Card` or its file, got {type(card).__name__}.")
    if card.weights_sha256 != model.weights_hash:
        base = " These are the weights before fine-tuning."
        raise InputError(
            f"Expected a card of the weights of model `{model.name}` ({model.weights_hash}), got "
            f"one of other weights ({card.weights_sha256})."
            f"{base if card.base_sha256 == model.weights_hash else ''} Give the weights that were "
            f"written beside the card."
        )
    return replace(model, card={**model.card, IN_DOMAIN: card})
