"""What a criterion is worth: can a judge read it without the paper, does it state a decision, and could a plan have made that decision?"""

import re

from papergym.data_pipeline import cues
from papergym.data_pipeline.english import STOP_WORDS, content_words, stem, verb_forms
from papergym.data_pipeline.names import KINDS
from papergym.data_pipeline.words import words as word_set

_UNREADABLE = re.compile(
    r"\b(?:this|these|those(?! (?:that|who|which|of|with|from|whose|in|resistant))|such(?! as)|their (?:results?|approach|method|work|"
    r"findings)|former|latter|"
    r"aforementioned|previously|earlier (?:sections?|work)|the (?:above|below|following|previous|next)|(?:results?|numbers?|terms?|"
    r"methods?) (?:above|below)|here\b|(?:above|below|earlier|"
    r"later|before)(?=[.,;:)]|$)|"
    r"(?:mentioned|described|discussed|introduced|defined|shown|given|detailed) (?:above|below|here|earlier|in (?:the|this|a) (?:next|"
    r"text|sections?|supplement\w*|appendix))|"
    r"paper|manuscript|letter|article|section|appendix|supplement(?:ary|al)?|figure|table|equation|respectively|it is (?:clear|"
    r"important|interesting|possible|impossible|worth)|"
    r"e\.g|i\.e|the authors?|so-called|is called|are called|denotes?|in that case|refers? to|future work|remarkabl\w+|interesting\w*|"
    r"note that|of course|recall)\b",
    re.IGNORECASE,
)
_STRANGE = re.compile(
    r"\b(?!(?:API|CPU|GPU|SQL|GB|TB|MB|ID|UI|USA?|UK|EU|GDP|DNA|RNA|MHz|GHz|kHz|MiB|GiB)\b)\w*(?:[A-Z]\w?[A-Z]|[A-Z]\d)[A-Za-z\d]*\b"
)
_DATE = re.compile(
    r"\b(?:19|20)\d\d (?:January|February|March|April|May|June|July|August|September|October|November|December)|\b(?:January|February|"
    r"March|April|June|July|August|September|October|November|December) \d"
)
_PRONOUN_EARLY = re.compile(
    r"^(?:\S+ ){0,5}?(?:it|its|them|their|they)\b|^[^,]*, (?:it|they|he|she)\b|^(?:While|Although|Though|Because|Since|As|When|If|"
    r"Whereas)\b.*, (?:it|they)\b|, so it\b|^(?:[\w-]+ ){1,6}(?:would|could|might|may)\b",
    re.IGNORECASE,
)
# Openings that tie a sentence to a course of events told before it.
_MID_STORY = re.compile(
    r"^(?:Once|Upon|When|After|Until|While) (?:\w+ly )?\w+(?:ed|en|ing),|^(?:Once|Now|Since then|Later|Meanwhile)\b|"
    r"\bha(?:s|ve) been\b|\blimitations?\b|\bmain text\b|\b(?:two|three|four|five) (?:that|which|are)\b|\bwhich, the plan\b|"
    r"\ball (?:the )?examples\b|\bso far\b|\bwhat (?:is|remains) left\b|"
    r"^In (?:parts? of|some|other|certain) |\bthe (?:rest|remainder)\b",
    re.IGNORECASE,
)
# Work done to advertise the method rather than to learn something.
_SHOWING_OFF = re.compile(
    r"\b(?:[Tt]o|[Ww]e|plan) (?:demonstrates?|illustrates?|highlights?|showcases?)\b|\b[Tt]he plan (?:releases?|reports? (?:early|initial|"
    r"preliminary|first|the discovery|deep|novel|new)|achieves?)\b|\bmethod achieves\b"
)
_SYMBOL = re.compile(
    r"(?<![\w'′″-])(?:[^\W\d_]{1,4}[_^](?:\([^()]*\)|[\w*-]+)|[\u0370-\u03ff]+\b|[^\W\d_]\([^\W\d_]\)|(?![aAI]\b)[^\W\d_](?![\w'′.-]))"
)
_NUMBER = re.compile(r"(?<=[ ~])\d[\d.,]*(?=[ %.,;]|$)")
_SET_TO = re.compile(
    r"\b\d[\d,]* (?:generations|steps|iterations|epochs|walkers)\b|"
    r"\b(?:set|fixed|calibrated|fix(?:es)?|initiali[sz]e[sd]?|sets|calibrates|held) (?:[\w-]+ ){0,8}?(?:to|at|as|by|with) [^,;]*?\d|"
    r"\b(?:set|calibrated) to \w+|(?<![<>≤≥]) = [-\d]"
)
_STATES = re.compile(
    r"\b(?:is|are) (?!(?:[\w-]+ly |then |also |never |always |not )?[\w-]+(?:ed|en|wn|un|ut|lt|pt|ght|ung|old|et|ad|it|ne)\b)|"
    r"\b(?:shows?|exhibits?|contains?|provides?|offers?|grows?|depends?|scales?|implies|imply|leads?|yields?|reflects?)\b"
)
_DESIGN_NOUN = re.compile(
    r"^(?:\S+ ){0,4}?(?:baselines?|ablations?|outcomes?|rivals?|controls?|treatments?|comparisons?|experiments?|benchmarks?|participants|"
    r"instructions|variants?|metrics?|measures?|arms?|tests?|questions?|users?|models?|units?|predictors?|covariates?)\b",
    re.IGNORECASE,
)
_SYSTEM_ACTS = re.compile(
    rf"(?:[^,]{{3,40}}, )?[Tt]he (?:{KINDS}) (?:\w+ly |never |always )?(?:{'|'.join(sorted(verb_forms()['third']))})\b"
)
_DEFINITE = re.compile(r"\b[Tt]he ((?:[\w'-]+ ?){1,6})")
_RESOLVING = word_set("of that which who whose in for between to with from on at under by")


def symbols(text: str, question: str) -> int:
    """How many different symbols it uses that the question doesn't."""
    return len({symbol for symbol in _SYMBOL.findall(text) if symbol not in question})


def is_setting(text: str) -> bool:
    """A bare value of a parameter, or a list of numbers: nobody can guess it."""
    return bool(_SET_TO.search(text)) or len(_NUMBER.findall(text)) >= 3


def unintroduced(text: str, asked: set[str]) -> int:
    """How many things it speaks of as known ("the survey") that neither the question nor its own words introduce."""
    count = 0
    for match in _DEFINITE.finditer(text):
        phrase = []
        for word in match.group(1).split():
            if word.lower() in STOP_WORDS:
                break
            phrase.append(word)
        rest = match.group(1).split()[len(phrase) :]
        if not phrase or (rest and rest[0] in _RESOLVING) or "plan" in match.group(1).split()[:1]:
            continue
        known = asked | content_words(text[: match.start()])
        count += not any(stem(word) in known for word in phrase)
    return count


def value(text: str, question: str, asked: set[str], novel: set[str], words: set[str]) -> float:
    """Higher for decisions in words that the question lacks; lower for facts, bare settings, symbols, names and things not introduced."""
    body = re.sub(r"^In the plan, ", "", text)
    action = cues.is_action(text) or bool(_SYSTEM_ACTS.match(body))
    score = min(len(novel), 14) / 4 + 2 * len(novel) / len(words)
    score += 1.8 * action - 1.6 * (not action and bool(_STATES.search(body)) and not _DESIGN_NOUN.match(body))
    score += 0.6 * bool(re.search(r"\b(?:each|every|all|at least|at most|both|same)\b", text)) + 1.0 * bool(cues.RATIONALE.search(text))
    score += 0.3 * text.startswith(("The plan", "For ", "To ")) + 0.5 * bool(cues.EXPERIMENT_CUE.search(text))
    score -= 0.6 * len(cues.GENERIC.findall(text)) + max(0, len(text.split()) - 34) / 12
    score -= 0.9 * symbols(body, question) + 1.2 * is_setting(body) + 0.45 * min(4, unintroduced(body, asked))
    score -= 0.7 * len([name for name in _STRANGE.findall(re.sub(r"\([A-Z][\w-]*\)", "", text)) if name not in question])
    score -= 0.3 * max(0, len(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", body)) - 1)
    return score - 1.5 * bool(re.search(r"\b(?:raises|lowers|rises|falls|nearly|no effect|tends?)\b|^In the plan, of \d", text))


def is_readable(text: str, question: str) -> bool:
    """Good on its own: no pointing back, no outcome, no date, few symbols, a subject that needs no introduction."""
    words = text.split()
    body = re.sub(r"^(?:In the plan, |The plan )", "", text)
    return (
        not re.match(r"(?:[Mm]ost|[Mm]any|[Ss]everal|[Ss]ome|[Ss]tandard|[Ee]xisting|[Tt]raditional\w*)\b", body)
        and 6 <= len(words) <= 52
        and not _UNREADABLE.search(body)
        and not _PRONOUN_EARLY.search(body)
        and not _DATE.search(body)
        and not _MID_STORY.search(body)
        and not re.search(r": [A-Z][a-z]|\bthe plan \w+\.$", body)
        and not _SHOWING_OFF.search(text)
        and not cues.is_dangling(body[0].upper() + body[1:])
        and cues.is_whole(text)
        and not cues.is_result(text)
        and cues.symbol_share(text) < 0.09
        and symbols(body, question) <= 2
        and not _names_stranger(body, question)
    )


def _names_stranger(body: str, question: str) -> bool:
    """Its subject is a code name that only the paper explains (TF2, C-LSTM)."""
    first = body.split()[0].strip(",")
    return bool(re.search(r"[A-Z].*[A-Z\d]|\d.*[A-Z]", first)) and first not in question
