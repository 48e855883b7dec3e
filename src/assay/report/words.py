"""A text with its words coloured by a map, as a small page."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.errors import InputError
from assay.report.gallery import word_colours
from assay.report.overlay import TensorLike, as_array

PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/2 system-ui, sans-serif; max-width: 50em; margin: 2em auto; }}
span {{ padding: 2px 4px; border-radius: 3px; color: #1a1a1a; }}</style>
<p>{title}</p><p>{words}</p>
"""


@dataclass(frozen=True)
class Words:
    """Words with their colours: red is for the class, blue against it."""

    title: str
    words: Sequence[str]
    values: TensorLike  # [T]
    special: Sequence[bool] = ()

    def save(self, path: Path) -> None:
        """Write the page.

        Raises:
            InputError: The file is not called an HTML page.
        """
        if path.suffix not in (".html", ".htm"):
            raise InputError(f"Expected `-o` to end in .html for a text, got `{path}`.")
        styles = word_colours(as_array(self.values).astype(np.float64), self.special)
        spans = [
            f'<span style="{style}">{html.escape(word)}</span>'
            for word, style in zip(self.words, styles, strict=True)
        ]
        page = PAGE.format(title=html.escape(self.title), words=" ".join(spans))
        path.write_text(page, encoding="utf-8")
