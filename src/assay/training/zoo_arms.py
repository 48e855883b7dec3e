"""The arms of a network of the zoo: how it was trained, as the text in its file's name."""

import re
from dataclasses import dataclass
from typing import Literal, cast

from assay.errors import InputError

ArmKind = Literal["base", "tuned", "placebo"]


@dataclass(frozen=True)
class Arm:
    """How a network was trained, read from a text such as `tuned-g8-blur` or `base-d25-t4`.

    Attributes:
        kind: `base`; `tuned`: then fine-tuned with single cells deleted; `placebo`: then fine-tuned
            in the same way without deletion.
        base: The arm it starts from; for a base arm itself.
        grid: Cells a side of the fine-tuning (`g8`).
        fill: What replaces a deleted cell (`blur`).
        share: The share of the training set that the base network saw (`d25`: 25 %).
        epochs: Epochs of the base network's training (`t4`); None is the recipe's.
    """

    kind: ArmKind
    base: str = "base"
    grid: int = 4
    fill: str = "zero"
    share: float = 1.0
    epochs: int | None = None


def parse_arm(text: str) -> Arm:
    """Read an arm.

    Raises:
        InputError: It is not one.
    """
    kind, *parts = text.split("-")
    grid, fill, share, epochs, basic = 4, "zero", 1.0, None, ["base"]
    for part in parts:
        number = int(part[1:]) if re.fullmatch("[gdt][1-9][0-9]*", part) else 0
        if number and part[0] == "d" and number <= 100:
            share = number / 100
            basic.append(part)
        elif number and part[0] == "t":
            epochs = number
            basic.append(part)
        elif number and part[0] == "g" and number > 1 and kind != "base":
            grid = number
        elif re.fullmatch("[a-z_]{2,}", part) and kind != "base":
            fill = part
        else:
            kind = ""
    if kind not in ("base", "tuned", "placebo"):
        raise InputError(
            f"Expected an arm `base`, `tuned` or `placebo`, got `{text}`. `tuned-g8-blur` names "
            f"grid and fill of the fine-tuning, `base-d25-t4` the percent of the training set and "
            f"the epochs of the base network."
        )
    arm_kind = cast(ArmKind, kind)
    return Arm(arm_kind, "-".join(basic), grid, fill, share, epochs)
