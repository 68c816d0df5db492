"""Turns a sentence into a criterion about a plan, by grammar: "We trained X and compared Y" -> "The plan trains X and compares Y".

Either the whole sentence can be rewritten with the verbs of words/verbs.txt, or the function returns None: a criterion in broken
English would teach a judge nothing.
"""

import re
from collections.abc import Collection, Mapping

from papergym.data_pipeline import cues
from papergym.data_pipeline.clips import NOTED
from papergym.data_pipeline.english import AMBIGUOUS_NOUNS, third_person, verb_forms
from papergym.data_pipeline.names import without_names
from papergym.data_pipeline.tense import follows_verb, present, statement_in_present
from papergym.data_pipeline.words import words

_LEADING = re.compile(
    r"^(?:(?:Moreover|Furthermore|Also|Additionally|In addition|Finally|First|Firstly|Second|Secondly|Third|Thirdly|Next|Then|Lastly|"
    r"Specifically|In particular|"
    r"Importantly|Note that|Further|Here|In practice|In (?:this|our) (?:paper|work|study|letter|article|setting|case|experiments?|"
    r"analysis|approach|setup|framework)|"
    r"For (?:our|this) (?:purposes?|analysis|study|work)|To do so|To this end|Concretely|Briefly|Instead|Again|However|Thus|Therefore|"
    r"Hence|Accordingly)(?:, | (?=we )))+"
)
_POINTING = re.compile(
    r"^(?:As opposed to|In contrast to|Unlike|Compared (?:to|with)|Similar(?:ly)? to|As in|As with|Like|"
    r"Analogous to) [^,]{0,80}\b(?:previous\w*|above|earlier|described|before)\b[^,]{0,40}, |"
    r" ?\([^()]*\b(?:detailed|described|index|in the SI)\b[^()]*\)(?=[ .,]|$)|"
    r" ?\([^()]*\b(?:this|our) (?:study|work|paper|letter)\b[^()]*\)|,? (?:in|for|of|throughout|prior to) (?:this|our|"
    r"the present) (?:study|work|paper|letter|article|manuscript)\b(?! (?:and|or) )",
    re.IGNORECASE,
)
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY = rf"(?:(?:19|20)\d\d )?{_MONTH} \d{{1,2}}(?:[–-]\d{{1,2}})?(?:,? (?:19|20)\d\d)?(?: UTC?)?"
# When and with what label it was done matters to nobody who plans.
_DATED = re.compile(
    rf"(?P<open>,)? (?:on|between|from|of|dating back to|starting (?:at|on)[^,]*? on) (?:the )?(?:(?:early hours|nights?) of )?{_DAY}"
    rf"(?: (?:and|to|until) {_DAY})?(?! and)(?(open),?)| ?\([^()]*\b(?:code|ID)s? [^()]*\)"
)
_SHOWN = re.compile(
    r"^(?P<what>(?!.*\b(?:we|which|that)\b).*?) (?:is|are|was|were) (?:shown|plotted|listed|displayed)(?P<rest>(?: for [^,]*)?\.)$"
)
_IDEA = re.compile(r"^(?:The|Our) (?:key|main|central|basic|core) idea (?:is|was) to ")
_PAST_REASON = re.compile(
    r"(?:,? because|, (?:and )?(?:since|which|where|although|while|after)) [^;]*?\b(?:was|were|had|did|took|led|made|came|went|gave|"
    r"fitted|failed|"
    r"proved|found|turned|became)\b.*$",
    re.DOTALL,
)
_OUTCOME_TAIL = re.compile(
    r",? and (?:we )?(?:then )?(?:find|found|show|showed|observe|observed|conclude|concluded|obtain|obtained|estimate that|see|saw|"
    r"note|noted|demonstrate)\b.*$",
    re.DOTALL,
)
_ADVERBS = (
    r"(?:also|then|first|next|moreover|further|furthermore|therefore|thus|instead|finally|additionally|always|only|simply|explicitly|again|"
    r"here|now|never|usually|typically|"
    r"jointly|separately|directly|independently|randomly|carefully|manually|automatically|again|all|both|hence|\w+ly)"
)
_WE = re.compile(rf"^(?P<before>.*?)(?P<we>\b[Ww]e) (?P<adverbs>(?:{_ADVERBS} )*)(?P<verb>[\w-]+)(?P<rest>.*)$", re.DOTALL)
_MODALS = words("can could will would must shall should may might")
_DROPPED_ADVERBS = words("also then first next moreover further furthermore therefore thus finally additionally here now hence all")
_INTENDED = words("want wanted need needed wish aim try tried attempt seek choose chose decide decided")
_OPENED = words("start started begin began proceed proceeded")
# What authors do as authors, not as a part of their plan.
_TELLING = words("find see show note expect observe think say know thank suggest illustrate discuss refer need remind get acknowledge lack")
_PREPOSITIONS = words("by in with on for from at as within across between over via using through and")
_DETERMINERS = words("A An The Each Every All No One")
_OPENING = re.compile(
    r"(?:For|From|In|To|At|With|Under|On|By|Over|Within|Across|Because|Since|When|Where|Whenever|If|After|Before|During|Using|Following|As|"
    r"Given|Inspired|Motivated|Guided|Based|Besides|Rather|Unlike|Starting|Building|Instead|Without|Through|Throughout|Between|Among|Out|Alongside)\b"
)
_AUTHORS = re.compile(r"\b(?:we|[Oo]urs?|us)\b|\bWe (?=[a-z])(?!and\b|or\b|is\b)")  # not We, the Weber number
_THAT_THING = re.compile(
    r"\b(?:around|of|in|at|on|by|for|with|from|to|[Oo]nly|into|after|before) that (?!(?:is|are|of|which|in|from|with|on|the|a|each)\b)"
)
_DOUBT = "\ufff8"  # marks a form that may be either a verb or a participle: such a sentence is given up


def criteria_of(sentence: str, names: Mapping[str, str], lowercase_words: Collection[str] = ()) -> list[str]:
    """Returns the criteria that a sentence can be put as, without the paper's own names: one for each independent clause."""
    plain = (without_names(part, names) for part in _parts(sentence))
    return [text for part in plain if part and (text := criterion_text(part, lowercase_words))]


def _parts(sentence: str) -> list[str]:
    """A sentence, or its clauses where a semicolon joins independent ones: one decision each."""
    parts = [part.strip() for part in sentence.split(";")]
    if len(parts) == 1 or any(part.count("(") != part.count(")") for part in parts):
        return [sentence]
    whole = [part[0].upper() + part[1:] for part in parts if part and part[0].isascii()]
    return [part for part in whole if not cues.is_dangling(part) and len(part.split()) >= 6]


def criterion_text(sentence: str, lowercase_words: Collection[str] = ()) -> str | None:
    """Returns the criterion, or None when the rules can't say it in good English.

    lowercase_words: words that the paper writes in lower case, so that a sentence's first word may lose its capital.
    """
    text = _shortened(_as_action(sentence, lowercase_words))
    if text is None or "?" in text or re.search(r"\b(?:us|my|I|ourselves)\b", text):
        return None
    match = _WE.match(text)
    if match and _is_main_clause(match.group("before")):
        result = _about_plan(match)
    else:
        result = _about_thing(text, lowercase_words)
    if result is None or _DOUBT in result or _THAT_THING.search(result) or _AUTHORS.search(result):
        return None
    result = re.sub(r"(?:[ ,;:–—]|\b(?:and|or|but)\b)+$", "", result)
    return (result[0].upper() if result[0].isascii() else result[0]) + result[1:] + "."


def _as_action(sentence: str, lowercase_words: Collection[str]) -> str:
    """What a section is said to do (clips.quotable), and what a figure is said to show, "we" do and report."""
    first, _, rest = sentence.partition(" ")
    if first.lower() in NOTED:
        return f"We {verb_forms()['third'].get(first.lower(), first.lower())} {rest}"
    if first in ("Show", "Shows"):
        return f"We report {rest}"
    if match := _SHOWN.match(sentence):
        what = match.group("what")
        small = what.split()[0] in _DETERMINERS or what.split()[0].lower() in lowercase_words or bool(re.match(r"[A-Z][a-z]+ed ", what))
        return f"We report {what[0].lower() if small else what[0]}{what[1:]}{match.group('rest')}"
    before, comma, clause = sentence.partition(", ")
    if comma and cues.opens_action(sentence) and re.search(r"\b(?:this|(?:in|of|for|with|from|by) that|these|those|such)\b", before):
        return re.sub(r"^(?:here, )?we\b", "We", clause)
    return sentence


def _shortened(sentence: str) -> str | None:
    """Without openings and pointers that mean nothing outside the paper, and without outcomes; None when too little is left."""
    text = _LEADING.sub("", _DATED.sub("", sentence.strip())).rstrip(".").strip()
    text = _IDEA.sub("We ", _POINTING.sub("", _OUTCOME_TAIL.sub("", text)))
    shorter = _PAST_REASON.sub("", re.sub(r"\s*\((?:i\.e\.|e\.g\.)[^()]*\)", "", text))
    if not shorter or (shorter != text and len(shorter.split()) < 5):
        return None
    if len(shorter.split()) > 40:
        cut = re.sub(r", (?:which|where|while|whereas|although|so that it|as)\b[^,]*$", "", shorter)
        shorter = cut if len(cut.split()) >= 12 else shorter
    return re.sub(r"\([^()]*\)$", "", shorter).strip() if len(shorter.split()) > 40 else shorter


def _is_main_clause(before: str) -> bool:
    """Is the "we" behind this text the subject of the sentence? Yes at its start, or behind an opening phrase."""
    if not before.strip():
        return True
    other_subject = re.search(r"[;:]|, (?:and|which|who)\b.*\b(?:is|are)\b", before)
    return bool(_OPENING.match(before)) and not other_subject and len(before.split()) <= 22 and " we " not in before


def _about_plan(match: re.Match[str]) -> str | None:
    kind, finite = _finite(match.group("verb"), match.group("rest"))
    if finite is None:
        return None
    verb, rest = finite[0], _later_clauses(_coordinate(finite[1], kind))
    before = _later_clauses(match.group("before"))
    if rest is None or before is None:
        return None
    adverbs = "".join(f"{word} " for word in match.group("adverbs").split() if word not in _DROPPED_ADVERBS)
    before = before.rstrip(", ")
    return f"{before}, the plan {adverbs}{verb}{rest}" if before else f"The plan {adverbs}{verb}{rest}"


def _about_thing(text: str, lowercase_words: Collection[str]) -> str | None:
    """A statement about something else than its authors: in the present tense, and said of the plan."""
    spoken = _plan_for_we(text)
    statement = statement_in_present(spoken) if spoken is not None else None
    if statement is None:
        return None
    first = statement.split()[0].strip("\"',")
    if _OPENING.match(statement):
        return statement
    if first in _DETERMINERS or (first.lower() in lowercase_words and first[:1].isupper() and first[1:].islower()):
        return f"In the plan, {statement[0].lower()}{statement[1:]}"
    return statement


def _finite(verb: str, rest: str) -> tuple[str, tuple[str, str] | None]:
    """(form of the verb in the paper, (third person singular, what follows)); the second is None for verbs that aren't a plan's."""
    forms = verb_forms()
    if verb in _MODALS or (verb in ("have", "had") and re.match(r" (?:also |then |not )?\w+(?:ed|en|wn|un|lt|nt|ut)\b", rest)):
        kind = "past" if verb in ("have", "had") else "base"
        following = re.match(r" (?:also |then |\w+ly )?(?P<verb>[\w-]+)(?P<rest>.*)$", rest, re.DOTALL)
    elif verb in ("do", "did"):
        negated = re.match(r" not (?P<verb>[\w-]+)(?P<rest>.*)$", rest, re.DOTALL)
        known = negated is not None and negated.group("verb") in forms["base"]
        return "base", (f"does not {negated.group('verb')}", negated.group("rest")) if negated and known else None
    elif verb in _OPENED and (following := re.match(r" by (?P<verb>\w+ing)(?P<rest>.*)$", rest, re.DOTALL)):
        kind = "gerund"
    elif verb in _INTENDED and (following := re.match(r" to (?P<verb>[\w-]+)(?P<rest>.*)$", rest, re.DOTALL)):
        kind = "base"
    else:
        kind = "base" if verb in forms["base"] else "past"
        base = forms[kind].get(verb)
        return kind, None if base is None or base in _TELLING else (third_person(base), rest)
    base = forms[kind].get(following.group("verb")) if following else None
    return kind, (third_person(base), following.group("rest")) if following and base else None


def _coordinate(rest: str, kind: str) -> str:
    """Verbs joined to the first one take its form: "and compared the" -> "and compares the".

    A base form that may be a noun ("and test samples") counts as a verb only before a word that can't follow the noun. A past form
    that may be a participle ("collected and stored in") stays before a preposition; elsewhere it is marked as doubtful.
    """
    forms = verb_forms()[kind]

    def conjugate(match: re.Match[str]) -> str:
        base, following = forms.get(match.group("verb")), match.group("next")
        if base is None and match.group("verb") in verb_forms()["base"] and match.group("verb") not in AMBIGUOUS_NOUNS:
            base = match.group("verb")  # "simulated ... and calculate"
        if base is None or match.group("verb") == "required":
            return match.group()
        if kind == "past":
            if not match.group("join").startswith(",") and not follows_verb(following):
                return match.group("join") + _DOUBT
            if following in _PREPOSITIONS:
                return match.group()
        elif base in AMBIGUOUS_NOUNS and not follows_verb(following):
            return match.group("join") + _DOUBT if match.group("join").startswith(", and") else match.group()
        return f"{match.group('join')}{third_person(base)} {following}"

    return re.sub(
        r"(?P<join>(?:,? and|,? or|,? but|,) (?:then |also |finally |thus |only |in particular |in turn )?(?:\w+ly )?)"
        r"(?P<verb>[a-z-]+) (?P<next>[\w.,'-]+)",
        conjugate,
        rest,
    )


def _later_clauses(text: str) -> str | None:
    spoken = _plan_for_we(text)
    return None if spoken is None else present(spoken)


def _plan_for_we(text: str) -> str | None:
    """ "We" in a later clause is the plan again, "our" loses its owner; None when a "we" is left."""

    def clause(match: re.Match[str]) -> str:
        _, finite = _finite(match.group("verb"), match.group("rest"))
        return match.group() if finite is None else f"the plan {match.group('adverb')}{finite[0]}{finite[1]}"

    for _ in range(3):
        text = re.sub(r"\bwe (?P<adverb>(?:also |then |\w+ly )?)(?P<verb>[\w-]+)(?P<rest>.*)$", clause, text, flags=re.DOTALL)
    text = re.sub(r"(?<=: )ours\b|(?<=of )ours\b", "the plan's own", text)
    text = re.sub(r"\b[Oo]ur own\b", "its own", text)
    text = re.sub(r"\b([Oo])ur\b", lambda match: "The" if match.group(1) == "O" else "the", text)
    return None if re.search(r"\bwe\b|\bours\b", text) else text
