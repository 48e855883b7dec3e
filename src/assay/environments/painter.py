"""A painter of animals made of parts; whatever it left out of a scene was never there.

A scene is drawn from a seed: which animal, how it stands, the light, the things around it. Painting
it again without some parts shows what lies behind them, and changes nothing else.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

Array = np.ndarray[Any, Any]
Colour = tuple[int, int, int]
Shape = tuple[tuple[tuple[float, float], ...], Colour]  # corners in the animal's own units, colour

PARTS = {"beak": 4, "eye": 3, "foot": 4, "tail": 9, "wing": 6}  # how many variants of each
NAMES = tuple(PARTS)
PIECES = ("beak", "eye", "eye", "foot", "foot", "tail", "wing", "wing")  # of pairs, far before near
PART_OF_PIECE = tuple(NAMES.index(name) for name in PIECES)
FINER = 4  # each pixel is the mean of so many by so many points of a finer canvas
MOST_THINGS = 8  # around the animal

SCENE, BODY = (85, 85, 153), (170, 170, 170)
YELLOW, ORANGE, BLACK, WHITE = (250, 215, 30), (240, 130, 20), (15, 15, 15), (245, 245, 245)
RED, GREEN, BLUE = (215, 40, 40), (40, 175, 60), (45, 75, 225)
COLOURS = (RED, GREEN, BLUE)
THINGS = (RED, GREEN, BLUE, YELLOW)


def ellipse(x: float, y: float, a: float, b: float, turn: float = 0.0) -> Any:
    """The corners of an ellipse."""
    c, s = math.cos(turn), math.sin(turn)
    angles = [2 * math.pi * k / 20 for k in range(20)]
    around = [(a * math.cos(t), b * math.sin(t)) for t in angles]
    return tuple((x + c * u - s * v, y + s * u + c * v) for u, v in around)


# The animal looks to the right, its body's middle is the origin, y points down.
TRUNK: tuple[Shape, ...] = (
    (ellipse(-0.02, 0.05, 0.58, 0.40, -0.15), BODY),
    (ellipse(0.52, -0.38, 0.34, 0.32), BODY),
)
# Parts are drawn about equally large, so that size alone says little of what a part matters.
BEAKS: tuple[tuple[Shape, ...], ...] = (
    ((((0.74, -0.58), (1.46, -0.36), (0.74, -0.18)), YELLOW),),  # long
    ((((0.66, -0.74), (1.10, -0.38), (0.66, -0.02)), YELLOW),),  # thick
    (  # hooked
        (((0.72, -0.64), (1.18, -0.60), (1.28, -0.02), (1.02, -0.26), (0.74, -0.20)), YELLOW),
    ),
    (  # open
        (((0.72, -0.58), (1.26, -0.92), (0.86, -0.38)), YELLOW),
        (((0.86, -0.38), (1.26, 0.12), (0.72, -0.18)), YELLOW),
    ),
)
EYES: tuple[tuple[Shape, ...], ...] = (
    ((ellipse(0, 0, 0.20, 0.20), WHITE), (ellipse(0.03, 0, 0.08, 0.08), BLACK)),
    ((ellipse(0, 0, 0.20, 0.20), BLACK), (ellipse(0.05, -0.05, 0.06, 0.06), WHITE)),
    ((ellipse(0, 0, 0.22, 0.18), RED), (ellipse(0, 0, 0.16, 0.05), BLACK)),
)
FEET: tuple[tuple[Shape, ...], ...] = (
    (  # webbed
        (((-0.06, 0), (0.06, 0), (0.06, 0.36), (-0.06, 0.36)), ORANGE),
        (((0, 0.22), (0.34, 0.50), (-0.20, 0.50)), ORANGE),
    ),
    (  # three toes
        (((-0.06, 0), (0.06, 0), (0.06, 0.34), (-0.06, 0.34)), ORANGE),
        (((-0.06, 0.26), (0.06, 0.30), (-0.20, 0.58), (-0.30, 0.50)), ORANGE),
        (((-0.05, 0.28), (0.05, 0.28), (0.06, 0.62), (-0.06, 0.62)), ORANGE),
        (((-0.06, 0.30), (0.06, 0.26), (0.30, 0.50), (0.20, 0.58)), ORANGE),
    ),
    ((((-0.16, 0), (0.16, 0), (0.19, 0.28), (-0.19, 0.28)), ORANGE),),  # stump
    (  # ball
        (((-0.05, 0), (0.05, 0), (0.05, 0.40), (-0.05, 0.40)), ORANGE),
        (ellipse(0, 0.44, 0.17, 0.16), ORANGE),
    ),
)
TAILS = (
    (((-0.46, -0.10), (-1.00, -0.32), (-1.06, 0.22), (-0.46, 0.12)),),  # fan
    (  # fork
        ((-0.44, -0.10), (-1.16, -0.46), (-1.06, -0.24), (-0.46, 0.04)),
        ((-0.44, 0.00), (-1.06, 0.12), (-1.16, 0.34), (-0.46, 0.14)),
    ),
    (ellipse(-0.76, 0.00, 0.34, 0.15, 0.1),),  # paddle
)
WINGS = (
    (((0.20, 0.04), (-0.16, 0.28), (-0.58, -0.44)),),  # pointed
    (ellipse(-0.10, 0.06, 0.27, 0.16, 0.35),),  # round
)
# Where the far and the near one of a pair stand, and how large they are.
EYE_PAIR = ((0.76, -0.52, 0.75), (0.50, -0.44, 1.0))
FOOT_PAIR = ((-0.20, 0.34, 0.8), (0.16, 0.36, 1.0))
WING_PAIR = ((0.20, -0.36, 0.8), (0.0, 0.0, 1.0))


def classes(number: int = 50, seed: int = 0) -> Array:  # [number, parts]
    """The variant of each part that every class has; no two classes agree in all."""
    chosen = np.random.default_rng(seed).choice(math.prod(PARTS.values()), number, replace=False)
    return np.stack(np.unravel_index(chosen, tuple(PARTS.values())), 1)


@dataclass(frozen=True)
class Thing:
    """Something around the animal, in shares of the canvas."""

    corners: tuple[tuple[float, float], ...]
    colour: Colour
    before: bool  # whether it may hide the animal


@dataclass(frozen=True)
class Scene:
    """All that a picture is painted from."""

    variants: tuple[int, ...]  # of each part
    turn: float
    scale: float
    shift: tuple[float, float]
    mirrored: bool
    depth: float  # how far the far ones of pairs stand from the near ones
    light: float
    things: tuple[Thing, ...]

    @property
    def count(self) -> int:
        """Parts and things: those that can be left out, numbered in this order."""
        return len(NAMES) + len(self.things)


def draw_scene(variants: Sequence[int], generator: np.random.Generator) -> Scene:
    """A scene with this animal."""
    number = int(generator.integers(MOST_THINGS + 1))
    return Scene(
        variants=tuple(int(v) for v in variants),
        turn=math.radians(generator.uniform(-40, 40)),
        scale=generator.uniform(0.75, 1.1),
        shift=(generator.uniform(-0.08, 0.08), generator.uniform(-0.08, 0.08)),
        mirrored=bool(generator.random() < 0.5),
        depth=generator.uniform(0.6, 1.2),
        light=generator.uniform(0.7, 1.2),
        things=tuple(_thing(generator, k % 2 == 1) for k in range(number)),
    )


def _thing(generator: np.random.Generator, before: bool) -> Thing:
    x, y, size = *generator.uniform(0, 1, 2), generator.uniform(0.025, 0.07)
    turn, kind = generator.uniform(0, 2 * math.pi), int(generator.integers(3))
    if kind == 0:
        corners = ellipse(x, y, size, size * generator.uniform(0.5, 1), turn)
    else:  # three or four corners
        angles = [turn + 2 * math.pi * k / (kind + 2) for k in range(kind + 2)]
        corners = tuple((x + size * math.cos(a), y + size * math.sin(a)) for a in angles)
    return Thing(corners, THINGS[int(generator.integers(len(THINGS)))], before)


def _layers(scene: Scene) -> Iterator[tuple[int, Shape]]:
    """The animal's shapes from back to front, each with its piece; -1 is the body."""
    beak, eye, foot, tail, wing = scene.variants

    def pair(which: int, shapes: Sequence[Shape], places: Any) -> list[Shape]:
        x, y, size = places[which]
        if which == 0:  # the far one, as seen from where we stand
            x = places[1][0] + scene.depth * (x - places[1][0])
        return [(tuple((x + size * u, y + size * v) for u, v in c), k) for c, k in shapes]

    tails = [(corners, COLOURS[tail % 3]) for corners in TAILS[tail // 3]]
    wings = [(corners, COLOURS[wing % 3]) for corners in WINGS[wing // 3]]
    for piece, shapes in (
        (5, tails),
        (6, pair(0, wings, WING_PAIR)),
        (3, pair(0, FEET[foot], FOOT_PAIR)),
        (-1, TRUNK),
        (4, pair(1, FEET[foot], FOOT_PAIR)),
        (7, pair(1, wings, WING_PAIR)),
        (1, pair(0, EYES[eye], EYE_PAIR)),
        (2, pair(1, EYES[eye], EYE_PAIR)),
        (0, BEAKS[beak]),
    ):
        for shape in shapes:
            yield piece, shape


@functools.lru_cache(maxsize=1024)  # a scene is painted many times, without one thing or another
def _placed(scene: Scene) -> tuple[tuple[int, Array, Colour], ...]:
    """All shapes from back to front: what each belongs to, corners in shares of the canvas."""
    c, s = math.cos(scene.turn) * scene.scale, math.sin(scene.turn) * scene.scale
    animal = []
    for piece, (corners, colour) in _layers(scene):
        x, y = np.array(corners).T
        x, y = c * x - s * y, s * x + c * y
        x = -x if scene.mirrored else x
        red, green, blue = (min(255, round(scene.light * channel)) for channel in colour)
        places = np.stack([x, y], 1) * 0.36 + 0.5 + np.array(scene.shift)
        animal.append((piece, places, (red, green, blue)))
    things = [
        (thing.before, (len(PIECES) + k, np.array(thing.corners), thing.colour))
        for k, thing in enumerate(scene.things)
    ]
    behind = [layer for before, layer in things if not before]
    return (*behind, *animal, *(layer for before, layer in things if before))


def owner(piece: int) -> int:
    """The part, or behind the parts the thing, that a piece belongs to; -1 is nobody's."""
    if piece < len(PIECES):
        return PART_OF_PIECE[piece] if piece >= 0 else -1
    return piece - len(PIECES) + len(NAMES)


def paint(scene: Scene, size: int, absent: frozenset[int] = frozenset()) -> Array:  # [H, W, 3]
    """The picture, 8 bits a channel, without the parts and things that are absent."""
    return np.asarray(_canvas(scene, size, absent).reduce(FINER))


def points(scene: Scene, size: int, absent: frozenset[int] = frozenset()) -> Array:
    """The colours at every point of the fine canvas, of which a pixel is the mean of 4 by 4."""
    return np.asarray(_canvas(scene, size, absent))


def _canvas(scene: Scene, size: int, absent: frozenset[int]) -> Image.Image:
    canvas = Image.new("RGB", (size * FINER,) * 2, SCENE)
    _draw(canvas, scene, absent, coloured=True)
    return canvas


def pieces(scene: Scene, size: int) -> Array:  # [H * FINER, W * FINER]
    """The piece seen at every point of the fine canvas; -1 where it is the body or the scene."""
    canvas = Image.new("L", (size * FINER,) * 2, 0)
    _draw(canvas, scene, frozenset(), coloured=False)
    return np.asarray(canvas).astype(np.int64) - 1


def part_map(scene: Scene, size: int) -> Array:  # [H, W]
    """The piece seen in the middle of every pixel; -1 where it is the body or the scene."""
    middle = FINER // 2
    return pieces(scene, size)[middle::FINER, middle::FINER]


def touched(scene: Scene, size: int, part: int) -> Array:  # [H, W] bool
    """The pixels in which anything of a part or thing is seen."""
    owners = np.array([owner(p) for p in range(-1, len(PIECES) + len(scene.things))])
    mine = owners[pieces(scene, size) + 1] == part
    seen: Array = mine.reshape(size, FINER, size, FINER).any((1, 3))
    return seen


def _draw(canvas: Image.Image, scene: Scene, absent: frozenset[int], coloured: bool) -> None:
    pen, side = ImageDraw.Draw(canvas), canvas.width
    for piece, corners, colour in _placed(scene):
        if owner(piece) in absent:
            continue
        pen.polygon((corners * side).ravel().tolist(), fill=colour if coloured else piece + 1)
