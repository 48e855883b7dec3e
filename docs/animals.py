"""Draw `docs/images/animals.png`: animals, the same without one part, and their part maps."""

from pathlib import Path

import numpy as np
from PIL import Image

from assay.environments import painter

OUT = Path(__file__).parent / "images" / "animals.png"
SIZE, NUMBER, MARGIN = 96, 6, 4
# Of the parts, then of things around; the two pieces of a pair alike.
COLOURS = np.array([[250, 215, 30], [240, 240, 240], [240, 130, 20], [60, 160, 90], [200, 60, 120]])
NOBODY, THING = np.array([30, 30, 40]), np.array([90, 90, 110])


def part_picture(scene: painter.Scene) -> np.ndarray:
    """Every part in a colour of its own."""
    owners = [painter.owner(p) for p in range(len(painter.PIECES))]
    palette = np.stack([NOBODY, *COLOURS[owners], *[THING] * len(scene.things)])
    return palette[painter.part_map(scene, SIZE) + 1].astype(np.uint8)


def main() -> None:
    """Three rows: whole, without one part after the other, the map."""
    generator = np.random.default_rng(4)
    table = painter.classes()
    scenes = [
        painter.draw_scene(table[generator.integers(len(table))], generator) for _ in range(NUMBER)
    ]
    rows = [
        [painter.paint(scene, SIZE) for scene in scenes],
        [painter.paint(scene, SIZE, frozenset({k % 5})) for k, scene in enumerate(scenes)],
        [part_picture(scene) for scene in scenes],
    ]
    step = SIZE + MARGIN
    sheet = np.full((len(rows) * step - MARGIN, NUMBER * step - MARGIN, 3), 255, np.uint8)
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            sheet[r * step : r * step + SIZE, c * step : c * step + SIZE] = picture
    Image.fromarray(sheet).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
