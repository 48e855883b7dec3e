"""The answer of a run in words: for the page, the terminal and Python alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.plugins.questions import KNOWN_TRUTH, QUESTIONS
from assay.ranking.answer import Answer
from assay.store import SettingKey

NAMED = 3  # methods that a sentence names
SHORT = 2  # exceptions that a sentence names
WORDS = 60  # of a headline
REST = 6  # words that count the answers without room


def headline(answers: Sequence[Answer]) -> str:
    """The answer over all settings in at most 60 words, or its first sentence.

    The most important sentences come first; those that do not fit are left out, and the list says
    them. Environments, whose data and network were made for each other, count only where there is
    nothing else: they show whether protocols are right.
    """
    asked = [one for one in answers if not is_environment(one.setting)] or list(answers)
    if not asked:
        return "Nothing was ranked."
    if len(asked) == 1:
        (only,) = asked
        first, *parts = _begun(only)
        if _sure(only):
            parts += [differ(only), warnings(only), _without(only), _with_fill(only), twins(only)]
        return _fitting(first, parts)
    names = _short_names([one.setting for one in asked])
    by_text: dict[str, list[str]] = {}
    for one in asked:
        more = [differ(one), above(one)] if _sure(one) else []
        text = _joined(*_begun(one, short=True), *more)
        by_text.setdefault(text, []).append(names[one.setting])
    first, *lines = [f"{listed(places)}: {text}" for text, places in by_text.items()]
    whole = _joined(first, *lines)
    if len(whole.split()) <= WORDS:
        return _fitting(whole, [_robust_everywhere(asked, names)])
    kept = _fitting(first, lines, WORDS - REST)
    left = sum(line not in kept for line in lines)
    rest = f"The list shows {left} other answer{'' if left == 1 else 's'}." if left else ""
    return _joined(kept, rest)


def _fitting(first: str, more: Sequence[str], words: int = WORDS) -> str:
    """The first text, and as many of the others as there is room for."""
    text = first
    for one in more:
        longer = _joined(text, one)
        text = longer if len(longer.split()) <= words else text
    return text


def _short_names(settings: Sequence[SettingKey]) -> dict[SettingKey, str]:
    """The names of settings, without the model where all have the same one."""
    several = len({setting[:2] for setting in settings}) < len(settings)
    if len({setting.model for setting in settings}) == 1 and not several:
        return {setting: setting.dataset for setting in settings}
    return setting_names(settings)


def setting_names(settings: Sequence[SettingKey]) -> dict[SettingKey, str]:
    """The names of settings, with the checkpoint where a model has several."""
    several = len({setting[:2] for setting in settings}) < len(settings)
    return {setting: setting_text(setting, several) for setting in settings}


def _begun(answer: Answer, short: bool = False) -> list[str]:
    """The first sentences: by the truth where it is known, then by the protocols without it."""
    if by_truth_alone(answer):
        network = f"Only the known truth ranks here: {answer.silent}." if answer.silent else ""
        return [_joined(network, f"By the truth: {who(answer)}")]
    if not answer.true_first or (short and not is_environment(answer.setting)):
        return [who(answer)]
    return [by_truth(answer), f"Without the truth: {who(answer)}"]


def by_truth(answer: Answer) -> str:
    """Which methods come first by the truth; empty where it is not known."""
    if not answer.true_first:
        return ""
    protocols, first = list(answer.true_first), list(answer.true_first.values())
    if any(set(one) != set(first[0]) for one in first):
        cases = [f"{p}: {listed(methods)}" for p, methods in answer.true_first.items()]
        return f"Protocols that know the truth differ in the first method ({'; '.join(cases)})."
    verb = "comes" if len(first[0]) == 1 else "come"
    return f"By the truth ({listed(protocols)}), {listed(first[0])} {verb} first."


def by_truth_alone(answer: Answer) -> bool:
    """Whether no other question is asked."""
    return bool(answer.questions) and set(answer.questions) <= {KNOWN_TRUTH}


def question_lines(answers: Sequence[Answer]) -> list[str]:
    """What each question of the answers asks."""
    names = dict.fromkeys(name for one in answers for name in one.questions)
    return [f"{name}: {QUESTIONS[name]}" for name in names if name in QUESTIONS]


def _sure(answer: Answer) -> bool:
    return answer.enough and not answer.nothing


def sentences(answer: Answer) -> list[str]:
    """All that is to be said of one setting, the answer first."""
    begun = " ".join(_begun(answer))
    if not _sure(answer):
        return [begun]
    parts = [begun, differ(answer), warnings(answer), robust(answer), floor(answer)]
    return [text for text in (*parts, twins(answer)) if text]


def setting_text(setting: SettingKey, several_checkpoints: bool = False) -> str:
    """The name of a setting."""
    dataset, model, checkpoint = setting
    if is_environment(setting):
        return dataset
    tail = f" ({checkpoint})" if several_checkpoints and checkpoint else ""
    return f"{dataset}, {model}{tail}"


def is_environment(setting: SettingKey) -> bool:
    """Whether network and data were made for each other: they have one name."""
    return setting.dataset == setting.model


def who(answer: Answer) -> str:
    """Which methods are best."""
    if answer.nothing:
        return f"Nothing can be ranked: {answer.nothing}."
    different, best = answer.different, answer.best
    first = different[0]
    if not answer.enough:
        count = f"{answer.n_groups} independent sample{'' if answer.n_groups == 1 else 's'}"
        return f"{count}: too few to separate methods. {first} is first in the list, as a hint."
    if len(different) == 1:
        return f"{first} is the only method that could be ranked."
    if len(best) == len(different) and answer.advantages:
        return f"None of the {len(different)} methods is the best under all questions."
    if len(best) == len(different):
        return (
            f"No method beats another: the data do not separate the {len(different)} methods. "
            f"{first} is first in the list."
        )
    if len(best) == 1:
        return f"{best[0]} is the best of {len(different)} methods; no other one beats it."
    return f"{listed(best)} are the best of {len(different)} methods; every other one is beaten."


def differ(answer: Answer) -> str:
    """Where the best methods differ from each other."""
    if len(answer.best) < 2 or len(answer.best) == len(answer.different):
        return _leaders(answer) if len(answer.best) > 1 and answer.advantages else ""
    return _leaders(answer) or "The data do not separate them."


def _leaders(answer: Answer) -> str:
    """Under each question, the members of the best that are better than another member."""
    leads: dict[str, list[str]] = {}
    for one in answer.advantages:
        losers = {other.loser for other in answer.advantages if other.question == one.question}
        if one.winner not in losers and one.question not in leads.get(one.winner, ()):
            leads.setdefault(one.winner, []).append(one.question)
    parts = [f"{method} under {listed(questions)}" for method, questions in leads.items()]
    if not parts:
        return ""
    parts[0] = parts[0].replace(" under ", " is better under ", 1)
    return f"{'; '.join(parts)}."


def warnings(answer: Answer) -> str:
    """Controls that stand above one of the best methods."""
    ahead = [one for one in answer.controls_ahead if one.loser in answer.best]
    if not ahead:
        return above(answer)
    one = ahead[0]
    others = len(ahead) - 1
    more = f" ({others} more such case{'' if others == 1 else 's'})" if others else ""
    which = "But it" if len(answer.best) == 1 else f"Of these, {one.loser}"
    return f"{which} is worse than the control {one.winner} under {one.question}{more}."


def above(answer: Answer) -> str:
    """A warning where none of the best methods is better than the controls."""
    if not answer.controls or not set(answer.best) <= set(answer.not_above):
        return ""
    start = "It is not" if len(answer.best) == 1 else "None is"
    return f"{start} clearly better than every control."


def robust(answer: Answer) -> str:
    """Whether the answer stays without each question and with each fill."""
    return _joined(_without(answer), _with_fill(answer)) if _sure(answer) else ""


def _without(answer: Answer) -> str:
    if answer.one_question:
        return f"All protocols ask one question: {next(iter(answer.questions))}."
    if not answer.without:
        return "Leaving out any one question does not change this."
    return _changes([(f"Without {name}", best) for name, best in answer.without.items()])


def _with_fill(answer: Answer) -> str:
    if not answer.fills:
        return ""
    if len(answer.fills) == 1:
        start = f", from which {_start(answer.aligned)}" if answer.aligned else ""
        every = "Every removal that counts" if answer.fills_left_out else "Every removal"
        rest = "" if answer.fills_left_out else "; no other fill was tried"
        return f"{every} uses the fill {answer.fills[0]}{start}{rest}."
    if answer.survives_fills:
        return f"Each fill by itself gives the same answer ({', '.join(answer.fills)})."
    return _changes([(f"By the fill {fill} alone", b) for fill, b in answer.with_fill.items()])


def _changes(cases: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Which methods are the best in other cases."""
    texts = [
        f"{case} the best {'is' if len(best) == 1 else 'are'} {listed(best)}."
        for case, best in cases[:SHORT]
    ]
    more = len(cases) - SHORT
    rest = f"{more} more such case{'' if more == 1 else 's'}." if more > 0 else ""
    return _joined(*texts, rest)


def _start(names: Sequence[str]) -> str:
    return f"{listed(names)} {'starts' if len(names) == 1 else 'start'}"


def floor(answer: Answer) -> str:
    """Which methods fall behind the controls."""
    if not answer.controls:
        return "No control that ignores the network was run, so there is nothing to compare with."
    parts = []
    behind: dict[str, list[str]] = {}
    for one in answer.controls_ahead:
        if one.question not in behind.setdefault(one.loser, []):
            behind[one.loser].append(one.question)
    if behind:
        cases = [f"{method} ({', '.join(where)})" for method, where in behind.items()]
        parts.append(f"Worse than a control that ignores the network: {', '.join(cases)}.")
    unclear = [name for name in answer.not_above if name not in behind]
    if unclear:
        parts.append(f"Not clearly better than every control: {', '.join(unclear)}.")
    return " ".join(parts) or "Every method is better than the controls under some question."


def twins(answer: Answer) -> str:
    """Methods with the same scores."""
    pairs = [f"{name} = {other}" for name, other in answer.same_as.items()]
    return f"The same scores: {', '.join(pairs)}." if pairs else ""


def _robust_everywhere(answers: Sequence[Answer], names: Mapping[SettingKey, str]) -> str:
    """One sentence over several settings."""
    ranked = [one for one in answers if _sure(one)]
    several = [names[one.setting] for one in ranked if not one.one_question]
    tried = [names[one.setting] for one in ranked if len(one.fills) > 1]
    cases = [
        ("leaving out one question", several, [names[o.setting] for o in ranked if o.without]),
        ("taking one fill alone", tried, [names[o.setting] for o in ranked if o.with_fill]),
    ]
    asked = [(case, changed) for case, where, changed in cases if where]
    same = [case for case, changed in asked if not changed]
    parts = [f"{' or '.join(same)} does not change this"] if same else []
    if len(asked) == 2 and asked[0][1] == asked[1][1] and not same:
        asked = [(" or ".join(case for case, _ in asked), asked[0][1])]
    other = [f"{case} does on {listed(changed)}" for case, changed in asked if changed]
    if other:
        first, *more = other
        parts = [first.replace(" does on ", " changes the answer on ", 1), *more, *parts]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def listed(names: Sequence[str]) -> str:
    """Names joined as in a sentence; many of them are counted."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _joined(*texts: str) -> str:
    """The texts that are not empty."""
    return " ".join(text for text in texts if text)
