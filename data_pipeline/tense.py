"""What was done, said as what is to be done: verbs of a clause in the present tense, in the number of their subject."""

import re
from itertools import pairwise

from papergym.data_pipeline.english import AMBIGUOUS_NOUNS, past_forms, third_person, verb_forms
from papergym.data_pipeline.words import words

# Words that may stand behind a verb but not behind the noun that looks like it: "and test the", but "and test samples".
AFTER_VERB = words(
    "the a an its their it them to how whether which what that on with by for in at as from against over into within between among only "
    "each every all both any no one two three four five this these separately jointly"
)
_OBJECT_STARTS = words("the a an each every their its all both two three four five six ten twenty")
_BEFORE_NOUN = words(
    "the a an of in and or on to for with by from at as all its their per two three four five six seven eight nine ten each than"
)
_PLURALS = words("who which that people children data they we men women others")
_NUMBERS = words("two three four five six seven eight nine ten")
_FINITE = re.compile(r"\b(?:is|are|has|have|does|do|may|must|can|will|should)\b")
_PRESENT_OF_BE = {"were": "are", "was": "is"}
_RELATIVE = re.compile(r"(?P<noun>[\w-]+,?) (?P<which>which|that|who) (?P<verb>\w+ed|took|gave|made|ran|led|held|kept)\b")
_PEOPLE = re.compile(
    r"\b(participants|subjects|respondents|volunteers|annotators|raters|users|players|workers|students|bidders|experts|reviewers|"
    r"readers|patients|teams) (?P<verb>\w+ed|chose|gave|made|took|saw|read|wrote)\b(?! (?:by|in|from|through|via|at|for|as|on)\b)"
)
_STRAY_PAST = re.compile(
    r"(?:,|;|\band|\bwho|\bwhich|\bthat) (?:\w+ )?(?:answered|received|asked|took|gave|made|chose|said|led|went|came)\b"
)


def present(text: str) -> str | None:
    """Pasts of "be", of relative clauses and of what people did become presents; None when another past is left."""
    if re.search(r"\bif (?:\w+ ){1,3}were\b", text):  # a wish, not a past
        return None
    text = re.sub(r"\b(?:has|had) been (?=\w+(?:ed|en|wn)\b)", "is ", text)
    text = re.sub(r"\bhave been (?=\w+(?:ed|en|wn)\b)", "are ", text)
    text = re.sub(r"\b(was|were)\b", lambda match: _PRESENT_OF_BE[match.group()], text)
    text = _RELATIVE.sub(_relative, text)
    text = _PEOPLE.sub(lambda match: f"{match.group(1)} {verb_forms()['past'].get(match.group('verb'), match.group('verb'))}", text)
    text = re.sub(r"\b(is|are) (?:then|also|further|thus|therefore) (?=\w)", r"\1 ", text)
    text = re.sub(r"\bhad to\b", "have to", text)
    text = re.sub(r"\bdid not\b", "do not", text)
    return None if re.search(r"\b(?:had|did|could|would have)\b", text) else text


def statement_in_present(text: str) -> str | None:
    """A statement that has no authors, in the present tense; None when it has no verb or mixes its tenses."""
    was_past = bool(re.search(r"\b(?:was|were|been)\b", text))
    changed = present(text)
    if changed is None:
        return None
    result = changed if _singular_has_verb(changed) else _main_verb_in_present(changed)
    if result == changed and not _has_verb(changed):
        return None
    return None if was_past and _STRAY_PAST.search(result) else result


def _relative(match: re.Match[str]) -> str:
    """ "which rendered" after a singular noun is "which renders"."""
    base = verb_forms()["past"].get(match.group("verb"))
    if base is None:
        return match.group()
    verb = base if _is_plural(match.group("noun").rstrip(",")) else third_person(base)
    return f"{match.group('noun')} {match.group('which')} {verb}"


def _has_verb(text: str) -> bool:
    """A finite verb, not only words that are nouns as often ("raw in place of normalised histograms")."""
    if _FINITE.search(text):
        return True
    forms = verb_forms()
    if _singular_has_verb(text):
        return True
    for match in re.finditer(r"(?<=\s)([a-z][a-z-]+)(?=(?: ([\w.-]+))?)", text):
        base = forms["third"].get(match.group(1)) or forms["base"].get(match.group(1))
        subject = text[: match.start()].split()[-1]
        if base and (base not in AMBIGUOUS_NOUNS or (follows_verb(match.group(2) or "") and (_is_plural(subject) or subject in _PLURALS))):
            return True
    return False


def _singular_has_verb(text: str) -> bool:
    """Behind a singular subject the verb ends in s and stands behind a noun."""
    if not re.match(r"(?:The|A|An|Each|Every|One|No)\b", text):
        return False
    third, behind = verb_forms()["third"], pairwise(re.findall(r"[\w.-]+,?", text)[1:16])
    return any(word.rstrip(",") in third and before.rstrip(",") not in _BEFORE_NOUN for before, word in behind)


def _main_verb_in_present(text: str) -> str:
    """ "Two annotators wrote the key" -> "... write the key", where the first verb is a simple past and no participle."""
    forms = verb_forms()
    has_other_verb = bool(_FINITE.search(text))
    for match in re.finditer(r"(?<![\w-])[a-z][a-z-]+(?![\w-])", text):
        verb = match.group()
        if _FINITE.fullmatch(verb) or (forms["third"].get(verb) or forms["base"].get(verb) or "use") not in AMBIGUOUS_NOUNS:
            return text
        following = text[match.end() :].split(maxsplit=1)[:1]
        if verb in forms["third"] and following and following[0] in _OBJECT_STARTS:  # "shows an excess compared to"
            return text
        base = forms["past"].get(verb)
        if base is None or verb in forms["base"] or match.start() == 0 or (verb != past_forms(base)[0] and verb.endswith("n")):
            continue
        if has_other_verb and not (following and (following[0] in _OBJECT_STARTS or following[0].isdigit())):
            return text
        noun = text[: match.start()].split()[-1]
        if noun.endswith("ly") or (noun.lower() in _BEFORE_NOUN and noun not in _NUMBERS):  # "in place of newly normalised histograms"
            continue
        singular = bool(re.match(r"(?:A|An|Each|Every|One)\b", text)) or not _is_plural(noun)
        return f"{text[: match.start()]}{third_person(base) if singular else base}{text[match.end() :]}"
    return text


def follows_verb(word: str) -> bool:
    """Whether a word tells that the one before it is a verb."""
    return word in AFTER_VERB or word[:1].isdigit()


def _is_plural(noun: str) -> bool:
    return noun.endswith("s") and not noun.endswith(("ss", "us", "is"))
