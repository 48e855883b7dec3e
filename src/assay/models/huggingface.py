"""Sequence and image classifiers that `transformers` saved in a folder: `hf:FOLDER`."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from PIL import Image
from torch import nn

from assay.errors import InputError, PrerequisiteError, unknown, warn
from assay.models.factory import DESCRIPTION, describe
from assay.models.shim import ensure_torchvision
from assay.paths import user_path
from assay.plugins.option_types import Options
from assay.types import Model
from assay.types.pixels import Pixels, Preprocess
from assay.types.tokens import Tokenize, Tokens

KINDS = {"SequenceClassification": "text", "ImageClassification": "image"}
SQUASHED = 384  # pixels: ConvNeXt's preprocessing squashes instead of cropping from here on
LONGEST = 512  # tokens, where neither model nor tokenizer has a lower limit
Loaded = Any  # an object of transformers, which has no types


def hugging_face(folder: str, options: Options, label: str) -> Model:
    """A classifier with its tokenizer or image preprocessing, as `save_pretrained` wrote them.

    Args:
        folder: A folder that `save_pretrained` wrote, or the name of a model on the hub.
        options: Those of any network, and `length`, the most tokens of a text.
        label: The model's name in tables.

    Raises:
        PrerequisiteError: `transformers` or the folder is missing.
        InputError: It is not a classifier of images or texts, its head is untrained, or the
            tokenizer belongs to another network.
    """
    for option in options:
        if option not in (*DESCRIPTION, "length"):
            raise unknown(f"option of model `hf:{folder}`:", option, [*DESCRIPTION, "length"])
    transformers = _transformers()
    config = _load(transformers.AutoConfig, folder)
    classes = list(config.architectures or [])
    kind = next((k for end, k in KINDS.items() for name in classes if name.endswith(end)), None)
    if kind is None:
        raise InputError(
            f"Expected a sequence or image classifier in `{folder}`, got "
            f"{', '.join(classes) or 'no architecture'}. Fine-tune it as a classifier and save "
            f"that."
        )
    auto = {
        "text": transformers.AutoModelForSequenceClassification,
        "image": transformers.AutoModelForImageClassification,
    }[kind]
    net, loaded = _load(auto, folder, dtype=torch.float32, output_loading_info=True)
    if loaded["missing_keys"] and not options.get("weights"):
        raise InputError(
            f"Expected all weights in `{folder}`, but `{sorted(loaded['missing_keys'])[0]}` is "
            f"missing and would be random. Save the fine-tuned classifier, not its encoder."
        )
    names = [str(config.id2label[i]) for i in range(config.num_labels)]
    options = {"classes": None if names[0] == "LABEL_0" else names, **options}
    if kind == "image":
        return describe(net.eval(), options, label, _image_preprocessing(Path(folder)))
    tokenizer = _load(transformers.AutoTokenizer, folder)
    tokenize = _tokenization(net, tokenizer, folder, options.get("length"))
    return describe(net.eval(), options, label, tokenize)


def _transformers() -> ModuleType:
    if find_spec("transformers") is None:
        raise PrerequisiteError('`hf:` needs transformers: pip install "assay[text]".')
    if find_spec("torchvision") is not None:  # transformers imports it where it is installed
        ensure_torchvision()
    transformers = import_module("transformers")
    transformers.utils.logging.set_verbosity_error()  # our errors report what matters
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _load(auto: Loaded, folder: str, **options: object) -> Loaded:
    path = user_path(folder, "the folder")
    looks_local = folder.startswith((".", "/", "~")) or " " in folder or path.exists()
    if looks_local and not path.is_dir():
        raise PrerequisiteError(f"There is no folder `{folder}`.")
    try:
        name = str(path) if looks_local else folder
        return auto.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        if "trust_remote_code" in str(error):
            raise InputError(
                f"`{folder}` brings Python code of its own (`auto_map` in `config.json`), which "
                f"assay does not run. Read that code; if you trust it, build the network in a file "
                f"of yours and give `./file.py:function`."
            ) from error
        raise InputError(
            f"Expected what `save_pretrained` writes in `{folder}`, but {auto.__name__} cannot "
            f"read it ({reason})."
        ) from error


# --- images --------------------------------------------------------------------------------------


def _image_preprocessing(folder: Path) -> Preprocess | None:
    """The preprocessing of an image classifier, where its folder describes it."""
    file = folder.expanduser() / "preprocessor_config.json"
    if not file.is_file():
        return None
    config = json.loads(file.read_text())
    size = _side(config.get("size") or 224, file)
    crop = _side(config.get("crop_size") or size, file) if config.get("do_center_crop") else size
    if config.get("do_resize") is False:
        raise InputError(f"Expected `{file}` to resize images, but its `do_resize` is false.")
    if config.get("crop_pct") and size < SQUASHED:  # of ConvNeXt: a larger image, then a crop
        size = int(size / config["crop_pct"])
    plain = config.get("do_normalize") is False
    mean, std = (None if plain else config.get(name) for name in ("image_mean", "image_std"))
    usual = (0.0, 1.0) if plain else (0.5, 0.5)
    pixels = Pixels(tuple(mean or (usual[0],) * 3), tuple(std or (usual[1],) * 3))
    shorter = "shortest_edge" in _sides(config.get("size"))
    ratio_kept = config.get("do_center_crop") or (shorter and crop < SQUASHED)
    resample = Image.Resampling(config.get("resample", Image.Resampling.BICUBIC)).name.lower()
    return Preprocess(crop, pixels, resize=size, squash=not ratio_kept, resample=resample)


def _side(size: object, file: Path) -> int:
    sides = _sides(size)
    side = sides.get("shortest_edge") or sides.get("height")
    if side is None or sides.get("width", side) != side:
        raise InputError(
            f"Expected `{file}` to give one side for square inputs, got {dict(sides)}. Give "
            f"tensors as data, prepared as the network expects them."
        )
    return int(side)


def _sides(size: object) -> Options:
    return size if isinstance(size, Mapping) else {"height": size}


# --- texts ---------------------------------------------------------------------------------------


def _tokenization(net: nn.Module, tokenizer: Loaded, folder: str, length: int | None) -> Tokenize:
    embedding: nn.Embedding = net.get_input_embeddings()  # type: ignore[operator]
    _check_pair(net, tokenizer, embedding.num_embeddings, folder)
    removable = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    tokens = Tokens(
        pad=tokenizer.pad_token_id,
        mask=tokenizer.mask_token_id,
        special=frozenset(tokenizer.all_special_ids) - removable,
        embedding=next(name for name, module in net.named_modules() if module is embedding),
        named=True,
    )
    first = _first_position(net, tokenizer, tokens)
    places = getattr(net.config, "max_position_embeddings", None) or LONGEST
    longest = min(LONGEST, places - (first or 0), tokenizer.model_max_length, length or LONGEST)
    content = _content(tokenizer)
    return Tokenize(
        _Encoder(tokenizer, longest),
        Tokens(**{**vars(tokens), "first_position": first}),
        longest,
        identity=hashlib.sha256(content.encode()).hexdigest()[:16],
        decode=tokenizer.convert_ids_to_tokens,
    )


class _Encoder:
    """From texts to token ids, cut to the longest that the network takes."""

    def __init__(self, tokenizer: Loaded, longest: int) -> None:
        """Set the tokenizer and the most tokens."""
        self.tokenizer, self.longest = tokenizer, longest

    def __call__(self, text: str) -> list[int]:
        """The ids of one text."""
        return self.many([text])[0]

    def many(self, texts: list[str]) -> list[list[int]]:
        """The ids of several texts, encoded together."""
        encoded = self.tokenizer(texts, truncation=True, max_length=self.longest)
        ids: list[list[int]] = encoded["input_ids"]
        return ids


def _content(tokenizer: Loaded) -> str:
    """Everything that decides how a text is split, and nothing about where it was read from."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    words = backend.to_str() if backend is not None else sorted(tokenizer.get_vocab().items())
    return json.dumps([type(tokenizer).__name__, words, str(tokenizer.special_tokens_map)])


def _check_pair(net: nn.Module, tokenizer: Loaded, rows: int, folder: str) -> None:
    """Refuse a tokenizer that cannot be this network's: its ids would mean other words."""
    words = len(tokenizer)
    padding = getattr(net.config, "pad_token_id", None)
    if tokenizer.pad_token_id is None:
        raise InputError(
            f"Expected the tokenizer in `{folder}` to have a padding token, got none: absent words "
            f"become padding. Set `tokenizer.pad_token` and save it."
        )
    if words > rows or words < 0.9 * rows:
        raise InputError(
            f"Expected the tokenizer in `{folder}` to belong to the network, which embeds {rows} "
            f"tokens, got one of {words}. Save network and tokenizer of one model."
        )
    if padding is not None and padding != tokenizer.pad_token_id:
        raise InputError(
            f"Expected the tokenizer in `{folder}` to belong to the network, whose padding is "
            f"token {padding}, got one that pads with {tokenizer.pad_token_id}."
        )


def _first_position(net: nn.Module, tokenizer: Loaded, tokens: Tokens) -> int | None:
    """The network's first position, found by running it; None where it takes no positions.

    Some networks count positions over the tokens that are not padding: a removed word would shift
    all words after it. Explicit positions prevent that.
    """
    if "position_ids" not in inspect.signature(net.forward).parameters:
        return None
    ids = torch.tensor([tokenizer("one two three")["input_ids"]])
    net.eval()
    with torch.no_grad():
        plain = tokens.read(net, ids).logits
        for first in (0, tokens.pad + 1):
            placed = Tokens(**{**vars(tokens), "first_position": first}).read(net, ids).logits
            if torch.allclose(placed, plain, atol=1e-5):
                return first
    warn(
        "The first position of this network is unknown, so the network counts positions itself. "
        "If it counts only the words that are present, removing a word shifts those after it."
    )
    return None
