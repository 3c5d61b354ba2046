"""What is done with a text: hiding personal data, finding words, finding its language. No I/O."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# -- personal data --------------------------------------------------------------------------------


def _is_card(text: str) -> bool:
    """Luhn's check, which every card number passes and nine of ten other numbers do not."""
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """ISO 7064: the letters as numbers, the first four characters at the end, modulo 97."""
    plain = "".join(text.split())
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def _always(text: str) -> bool:
    return True


class Rule(NamedTuple):
    kind: str
    pattern: re.Pattern[str]
    is_meant: Callable[[str], bool] = _always


# In this order: an IBAN has digits that look like a card, a card like a telephone number. What is
# inside of a word or of an id, such as a UUID, is none of them. The time of each grows as the text
# does: a repetition is bounded, or possessive and only at the beginning of a word.
_RULES: Final = (
    Rule("e-mail", re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++")),
    Rule(
        "iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"), _is_iban
    ),
    Rule("card", re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"), _is_card),
    Rule("phone", re.compile(r"(?<![\w-])(?:\+|0)\d(?:[ /()-]{0,2}\d){6,13}(?![\w-])")),
    Rule(
        "name",
        re.compile(
            r"(?:(?<=Name: )|\b(?:Mrs?|Ms|Dr|Prof|Herrn?|Frau|Mme|M)\b\.? )"
            r"[A-ZÀ-Þ][\w'-]+(?: (?:(?:van|von|de|la) )?[A-ZÀ-Þ][\w'-]+){0,2}"
        ),
    ),
)


class Redacted(NamedTuple):
    """A text without personal data, and how much of which kind was hidden."""

    text: str
    hidden: Counter[str]


def redact(text: str) -> Redacted:
    hidden: Counter[str] = Counter()
    for rule in _RULES:
        text = rule.pattern.sub(_hiding(rule, hidden), text)
    return Redacted(text, hidden)


def _hiding(rule: Rule, hidden: Counter[str]) -> Callable[[re.Match[str]], str]:
    def hide(found: re.Match[str]) -> str:
        if not rule.is_meant(found.group()):
            return found.group()
        hidden[rule.kind] += 1
        return f"[{rule.kind}]"

    return hide


# -- words ----------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"[^\W\d_]+")
_HIDDEN: Final = re.compile(r"\[[a-z-]+\]")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")

# The commonest words of a language show which one it is, and nothing about a text.
_COMMON: Final = {
    "en": "the of and to a in is that for it was on with as be at by this have from or are not you "
    "your we our which will has been an he she they his her but if all no so up out into",
    "de": "der die und das in den von zu mit ist des im für sich nicht ein eine als auch es an "
    "werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über so zum war nur",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce "
    "il sont mais avec son nous vous être cette ou aux elle été leur ont ses si votre je me",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más o pero "
    "sus le ha me si sin sobre este ya entre cuando todo esta ser son dos también fue",
}
_COMMON_WORDS: Final = {language: frozenset(words.split()) for language, words in _COMMON.items()}


def words_of(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_HIDDEN.sub(" ", text))]


def language_of(words: Sequence[str]) -> str:
    """The language with the most of its commonest words; `und`, as in ISO 639, without any."""
    found = {
        language: sum(word in common for word in words)
        for language, common in _COMMON_WORDS.items()
    }
    best = max(found, key=found.__getitem__)
    return best if found[best] else "und"


def keywords_of(words: Sequence[str], language: str, *, most: int = 8) -> dict[str, int]:
    """The words that say what a text is about, and how often they are in it; long ones say more."""
    common = _COMMON_WORDS.get(language, frozenset())
    counted = Counter(word for word in words if len(word) > 3 and word not in common)
    best = sorted(counted, key=lambda word: (counted[word], len(word)), reverse=True)
    return {word: counted[word] for word in best[:most]}


# -- sentences ------------------------------------------------------------------------------------


def sentences_of(text: str) -> list[str]:
    return [
        " ".join(sentence.split()) for sentence in _SENTENCE_END.split(text) if sentence.strip()
    ]


def summary_of(text: str, language: str, *, most: int = 2) -> str:
    """The sentences with the most keywords in them, in their own order."""
    weights = keywords_of(words_of(text), language, most=20)
    sentences = sentences_of(text)

    def weight(index: int) -> float:
        words = words_of(sentences[index])
        return sum(weights.get(word, 0) for word in words) / (len(words) + 5)

    best = sorted(range(len(sentences)), key=weight, reverse=True)[:most]
    return " ".join(sentences[index] for index in sorted(best))
