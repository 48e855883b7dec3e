"""A model with the card of its fine-tuning."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from assay.errors import InputError, PrerequisiteError
from assay.paths import user_path
from assay.types import Model
from assay.types.card import IN_DOMAIN, TRAINING_SAMPLES, Card
from assay.types.hashing import hash_numbers


def read_card(path: str | Path) -> Card:
    """The card in a file that `assay finetune` wrote.

    The hashes of the training samples are read from the file beside it, if that is there.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: It holds no card, or the file beside it belongs to another card.
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
    return _with_samples(Card.from_json(stored), place.with_name(TRAINING_SAMPLES))


def _with_samples(card: Card, place: Path) -> Card:
    """The card with the hashes of its training samples; without their file nothing is known."""
    if card.training_sha256 is None or not place.is_file():
        return replace(card, training_sha256=None)
    try:
        hashes = load_file(place).get("hashes", torch.empty(0))
    except (SafetensorError, OSError):
        hashes = torch.empty(0)
    if hash_numbers(hashes) != card.training_sha256:
        raise InputError(
            f"Expected `{place}` to hold the training samples of the card beside it, got a damaged "
            f"file or that of another card. Put back the one that `assay finetune` wrote, or "
            f"delete it: then it is not known which samples the network was trained on."
        )
    return replace(card, training_hashes=hashes)


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
