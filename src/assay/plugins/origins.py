"""Where an address comes from, and so whether its code may run.

Code runs where the user typed its address, on the command line or in Python. A suite runs the files
in its own folder, as a Makefile does, and installed packages that register plug-ins. Everything
else that is read from a file needs the user's consent: `--trust-code`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from assay.errors import PrerequisiteError
from assay.plugins.entry_points import registers_plugins


def is_address(name: str) -> bool:
    """Whether a name is an address, or only its file, rather than a registered name."""
    return ":" in name or name.endswith(".py")


def is_file(place: str) -> bool:
    """Whether the part of an address before the colon is a file rather than a module."""
    return place.endswith(".py") or "/" in place


@dataclass(frozen=True)
class Origin:
    """Where the addresses of a suite come from.

    Attributes:
        where: The file that names them, as errors call it; empty where the user typed them.
        folder: The folder whose files the suite may name; None for a suite in a run folder.
        typed: Addresses that the user typed all the same.
        trusted: Whether the user trusts all code that the file names.
    """

    where: str = ""
    folder: Path | None = None
    typed: frozenset[str] = frozenset()
    trusted: bool = False

    def typing(self, *addresses: str | None) -> Self:
        """The same origin, where the user also typed these addresses."""
        return replace(self, typed=self.typed.union(a for a in addresses if a is not None))

    def trusting(self, trusted: bool) -> Self:
        """The same origin with all its code trusted, if so; trust is never taken away."""
        return replace(self, trusted=self.trusted or trusted)

    def check(self, kind: str, address: str) -> None:
        """Refuse an address whose code may not run.

        Raises:
            PrerequisiteError: The user has neither typed the address nor trusts the file.
        """
        if not self.where or self.trusted or address in self.typed:
            return
        place = address if address.endswith(".py") else address.rpartition(":")[0]
        if not is_file(place):
            if registers_plugins(place.partition(".")[0]):
                return
        elif self.folder is not None:
            file = Path(place).expanduser()
            if file.resolve().is_relative_to(self.folder):
                return
            if not file.exists() and (self.folder / file).is_file():
                raise PrerequisiteError(
                    f"There is no file `{place}` for the {kind} in {self.where}: paths in a suite "
                    f"are relative to the working folder. Run the command in `{self.folder}`."
                )
        raise PrerequisiteError(
            f"The {kind} `{address}` in {self.where} is code that you did not type, so it was not "
            f"run. A suite runs only files in its own folder and packages that register assay "
            f"plug-ins; a run folder runs no code. Read the code first. If you trust it, add "
            f"`--trust-code` (in Python `trust_code=True`)."
        )

    def check_all(self, kind: str, value: object) -> None:
        """Refuse an address anywhere in the value of an option that may name code.

        Raises:
            PrerequisiteError: The user has neither typed the address nor trusts the file.
        """
        for address in addresses_in(value):
            self.check(kind, address)


def addresses_in(value: object) -> Iterator[str]:
    """Every text in an option that may be an address: of an item, its options, and so on."""
    if isinstance(value, str):
        if value.endswith(".py") or (":" in value and value.rpartition(":")[2].isidentifier()):
            yield value
    elif isinstance(value, Mapping):
        yield from addresses_in([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from addresses_in(part)


TYPED = Origin()  # the user typed the address, on the command line or in Python
