"""The verdicts of all published claims on the page about claims: `make claims` writes them."""

import re
from collections.abc import Iterator
from pathlib import Path

from assay.studies.claim_verdict import ClaimVerdict, verdicts_of
from assay.studies.published_claims import PAPERS, published

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
MARKED = re.compile(r"(<!-- verdicts -->\n).*?(\n<!-- /verdicts -->)", flags=re.S)


def main() -> None:
    """Rewrite the page if its table is out of date."""
    text = PAGE.read_text()
    if text != with_verdicts(text):
        PAGE.write_text(with_verdicts(text))
        print(f"Updated {PAGE.relative_to(ROOT)}")


def with_verdicts(text: str) -> str:
    """The text with the published verdicts between its markers."""
    table = "\n".join(lines())
    return MARKED.sub(lambda found: f"{found[1]}{table}{found[2]}", text)


def lines() -> Iterator[str]:
    """One row for each claim, in the order of the papers."""
    yield "| claim | statement | verdict |"
    yield "|---|---|---|"
    for paper in PAPERS:
        for verdict in verdicts_of(published(paper)):
            yield f"| `{verdict.claim}` | {verdict.statement} | {said(verdict)} |"


def said(verdict: ClaimVerdict) -> str:
    """The verdict with its setting, and the rows that make it."""
    open_claim = verdict.verdict in ("not run yet", "not testable here")
    return verdict.text + (f" ({verdict.why})" if verdict.why and not open_claim else "")


if __name__ == "__main__":
    main()
