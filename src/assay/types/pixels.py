"""From images to model inputs and back: normalisation, resize and crop."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from assay.errors import InputError, unknown


@dataclass(frozen=True)
class Pixels:
    """How model inputs relate to pixels in [0, 1]: `input = (pixel - mean) / std` per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def to_input(self, value: float | Sequence[float]) -> Tensor:  # [C, 1, 1]
        """A pixel colour as the model sees it."""
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        return ((torch.as_tensor(value, dtype=mean.dtype) - mean) / std)[:, None, None]

    def to_pixels(self, inputs: Tensor) -> Tensor:  # [..., C, H, W]
        """Model inputs as pixels in [0, 1]."""
        shape = (-1, 1, 1)
        mean, std = (inputs.new_tensor(v).reshape(shape) for v in (self.mean, self.std))
        return (inputs * std + mean).clamp(0, 1)


LARGEST_SIDE = 16_384  # pixels of a network's input


@dataclass(frozen=True)
class Preprocess:
    """How a network turns an image file into its input: resize, centre crop, normalise."""

    size: int
    pixels: Pixels
    resize: int | None = None  # length of the shorter side before the crop; None = `size`
    squash: bool = False  # resize both sides to `size`, ignoring their ratio, instead of a crop
    resample: str = "bicubic"  # or bilinear, nearest, lanczos, box, hamming

    def __post_init__(self) -> None:
        """Reject sizes that no image has, and a filter that Pillow does not have.

        Raises:
            InputError: A size is not a whole number, or out of range.
        """
        for what, side in (("size", self.size), ("resize", self.resize)):
            if side is not None and (type(side) is not int or not 1 <= side <= LARGEST_SIDE):
                raise InputError(
                    f"Expected `{what}` to be a whole number of pixels from 1 to {LARGEST_SIDE}, "
                    f"got {side!r}."
                )
        if self.resize is not None and self.resize < self.size and not self.squash:
            raise InputError(
                f"Expected `resize`, the shorter side before the crop, to be at least `size`, "
                f"{self.size}, got {self.resize}."
            )
        if self.resample.upper() not in Image.Resampling.__members__:
            raise unknown("filter", self.resample, [f.name.lower() for f in Image.Resampling])

    def __call__(self, image: Image.Image) -> Tensor:  # [3, size, size]
        """The image as the network's input."""
        cropped = self._crop(image.convert("RGB"), Image.Resampling[self.resample.upper()])
        x = torch.frombuffer(bytearray(cropped.tobytes()), dtype=torch.uint8)
        x = x.reshape(self.size, self.size, 3).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(v)[:, None, None] for v in (self.pixels.mean, self.pixels.std))
        return (x - mean) / std

    def mask(self, mask: Image.Image) -> Tensor:  # [size, size]
        """A truth mask under the same resize and crop, without blending its values."""
        cropped = self._crop(mask.convert("L"), Image.Resampling.NEAREST)
        flat = torch.frombuffer(bytearray(cropped.tobytes()), dtype=torch.uint8)
        return (flat.reshape(self.size, self.size) > 127).float()

    def _crop(self, image: Image.Image, how: Image.Resampling) -> Image.Image:
        if self.squash:
            return image.resize((self.size, self.size), how)
        short = self.resize or self.size
        scale = short / min(image.size)
        width, height = (max(short, round(side * scale)) for side in image.size)
        if (width, height) != image.size:
            image = image.resize((width, height), how)
        left, top = (width - self.size + 1) // 2, (height - self.size + 1) // 2
        return image.crop((left, top, left + self.size, top + self.size))
