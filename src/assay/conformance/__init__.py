"""The rules of every plug-in, checked on small artificial worlds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.conformance import environments, methods, protocols, set_protocols
from assay.conformance.worlds import Fault
from assay.errors import InputError, NotApplicable, unknown
from assay.plugins import registry
from assay.plugins.addresses import is_address, load_object
from assay.suite.spec import choose_one

KINDS: dict[str, tuple[Sequence[Callable[..., None]], Sequence[Callable[[], Any]]]] = {
    "method": (methods.RULES, methods.WORLDS),
    "protocol": (protocols.RULES, protocols.WORLDS),
    "set protocol": (set_protocols.RULES, set_protocols.WORLDS),
    "environment": (environments.RULES, environments.WORLDS),
}
NAMED = ("method", "protocol", "environment")


@dataclass(frozen=True)
class Finding:
    """The result of one check: `ok`, `n/a` or `FAILED`, and the reason."""

    check: str
    status: str
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether the plug-in breaks this rule."""
        return self.status == "FAILED"


def examine(name: str) -> Iterator[Finding]:
    """Run every check on a method, protocol or environment, by its name or address.

    Raises:
        InputError: There is no such plug-in, or it cannot be imported.
    """
    kind = _kind(name)
    plugin = choose_one(kind, name).plugin  # raises before any check if the plug-in is wrong
    whole_set = kind == "protocol" and plugin.scope == "set"
    checks, worlds = KINDS["set protocol" if whole_set else kind]
    return (_finding(check, worlds, name) for check in checks)


def say_before(name: str) -> str:
    """A note to print before the checks of this plug-in; often empty."""
    return environments.say_small(name) if _kind(name) == "environment" else ""


def _kind(name: str) -> str:
    if not is_address(name):
        for kind in NAMED:
            if name in registry.names(kind):
                return kind
        everything = [n for kind in NAMED for n in registry.names(kind)]
        raise unknown("method, protocol or environment", name, everything)
    target, _ = load_object(name)
    kind = getattr(getattr(target, "__assay__", None), "kind", "method")
    if kind not in NAMED:
        raise InputError(
            f"Expected `{name}` to be a method, protocol or environment, got a {kind}."
        )
    return str(kind)


def _finding(check: Callable[..., None], worlds: Sequence[Callable[[], Any]], name: str) -> Finding:
    """Run one check: it is ok if the rule holds in some world and is broken in none."""
    title = (check.__doc__ or check.__name__).split("\n")[0].rstrip(".")
    reasons = []
    for make in worlds:
        try:
            check(make(), name)
        except NotApplicable as reason:
            reasons.append(str(reason).rstrip("."))
        except Fault as fault:
            return Finding(title, "FAILED", f"{fault} ({make.__name__})")
        except (Exception, SystemExit) as error:  # raised by the plug-in
            return Finding(title, "FAILED", f"{type(error).__name__}: {error} ({make.__name__})")
    if len(reasons) == len(worlds):
        return Finding(title, "n/a", "; ".join(dict.fromkeys(reasons)))
    return Finding(title, "ok")
