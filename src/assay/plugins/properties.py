"""Four properties by which evaluation protocols are told apart (hesse2024, Table 1)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Properties:
    """What a protocol guarantees; by default nothing, and models may not be compared by it.

    Attributes:
        in_domain: Whether the network was trained on inputs like those it is asked about, so that
            a drop is not caused by an unusual input. None: not declared.
        no_leakage: Whether the shape of what is removed says nothing about the class. None where
            this does not matter, because the network never learned from such inputs.
        inter_model: Whether scores of different models are comparable: the best possible score is
            the same for all, a change of the output's scale alone cannot change the score, and all
            methods are scored on the same network.
        natural_data: Whether it works on natural data, not only on designed data. None: not
            declared.
        reason: Why models may or may not be compared, in one sentence.
    """

    in_domain: bool | None = None
    no_leakage: bool | None = None
    inter_model: bool = False
    natural_data: bool | None = None
    reason: str = "It does not declare whether models may be compared by it."

    def to_json(self) -> dict[str, bool | str | None]:
        """The properties as a JSON object."""
        return asdict(self)

    @property
    def in_words(self) -> str:
        """The four properties in one line, then the reason."""
        four = [(name, value) for name, value in self.to_json().items() if name != "reason"]
        said = "; ".join(f"{name.replace('_', ' ')}: {yes_or_no(value)}" for name, value in four)
        return f"{said}. {self.reason}"


def yes_or_no(value: object) -> str:
    """A property in words."""
    return "not applicable" if value is None else "yes" if value else "no"


# What a protocol declares: its properties, or a function from its options to them.
Declared = Properties | Callable[[Mapping[str, object]], Properties]
UNDECLARED = Properties()
