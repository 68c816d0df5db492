"""What a paper wants to know, said without its authors and without how they went about it."""

import re

_HERE = (
    r"(?:(?:In|With) (?:this|the present) (?:paper|work|letter|article|study|manuscript|contribution|report|note),? |Here,? |"
    r"Thus,? |Therefore,? |To this end,? )?"
)
_ADVERB = r"(?:therefore |thus |here |then |also |hence |now )*"
# Where a statement of the aim goes on to say how, or what came out.
_MEANS = re.compile(
    r",? (?:using|by (?:the )?\w+ing|by means of|with the help of|via|through (?:a|an|the)|based on|on the basis of|relying on|"
    r"exploiting|drawing on|in which we)\b.*$|"
    r",? and (?:then |also )?(?:we )?(?:find|show|demonstrate|conclude|report|propose|develop|present|introduce|use it|apply it|"
    r"calibrate|build|provide|validate|illustrate|compare it|prove|argue)\b.*$|"
    r",? (?:finding|showing|demonstrating|revealing|which we call|called|which we)\b.*$|; .*$|, so we .*$|, (?:a|"
    r"an) (?:\w+ ){1,6}(?:that|which)\b.*$",
    re.DOTALL,
)
_STUDY = (
    "study|investigate|examine|explore|assess|analyse|analyze|evaluate|test|measure|estimate|quantify|determine|characterise|"
    "characterize|understand (?=how|why|what|whether)|identify|compare|revisit|consider|address"
)
_AIMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), form)
    for pattern, form in (
        (
            rf"^{_HERE}[Ww]e {_ADVERB}(?:ask|(?:pose|raise|address|take up|"
            rf"study) the question) (?:the question )?(?:of )?(?P<aim>(?:whether|what|how|which|why|if|when|where|who)\b.*)$",
            "The question is {aim}",
        ),
        (rf"^{_HERE}[Ww]e {_ADVERB}(?:want|wish|would like|need) to know (?P<aim>.*)$", "The question is {aim}"),
        (
            r"^(?:The|Our) (?:main |primary |central |overall |first )?(?:objective|aim|goal|purpose|ambition)(?: of this \w+|"
            r" here)? (?:is|was) (?P<aim>to .*)$",
            "The aim is {aim}",
        ),
        (rf"^{_HERE}[Ww]e {_ADVERB}(?:aim|seek|want|set out|try|attempt|wish) (?P<aim>to .*)$", "The aim is {aim}"),
        (
            r"^(?:The|This) (?:present )?(?:paper|work|study|letter|article) (?:examines|asks|studies|investigates|"
            r"explores) (?P<aim>(?:whether|what|how|which|why)\b.*)$",
            "The question is {aim}",
        ),
        (r"^(?:The|Our) (?:question|problem)(?: (?:that )?we (?:address|ask|study|pose))? is (?P<aim>.*)$", "The question is {aim}"),
        (rf"^.{{0,160}}?\b[Ww]e {_ADVERB}(?P<aim>(?:{_STUDY}) .*)$", "The aim is to {aim}"),
        (r"^.{0,120}?\b[Ww]e \w+ [^,]{0,80}? aimed at (?P<aim>the \w+ .*)$", "The aim is {aim}"),
        (
            rf"^{_HERE}[Ww]e {_ADVERB}(?:present|propose|introduce|develop|describe|design|build|provide|report)\b[^.]{{0,160}}?\b"
            r"(?P<noun>method|framework|approach|model|algorithm|system|tool|technique|benchmark|benchmarking framework|procedure|"
            r"test|estimator|theory|protocol|dataset|data set|library)s?\b"
            r"[^.]{0,80}?\b(?P<aim>(?:for \w+ly and \w+ly \w+ing|for (?:\w+ly )?\w+ing|to \w+) .*)$",
            "What is wanted is a {noun} {aim}",
        ),
        (
            r"^[A-Z]\w*[A-Z]\w* is (?P<aim>an? (?:[\w-]+ ){1,8}?(?:system|library|framework|package|tool|toolkit|language|platform|solver|"
            r"simulator|compiler)(?: (?:for|to|of) (?:(?!that|which|written|based|built)[\w-]+ ?){1,12})?)\b.*$",
            "What is wanted is {aim}",
        ),
    )
)


def aim(sentence: str) -> str | None:
    """Puts a statement of the aim without its authors and without its means; None when only "we did it like this" is left."""
    text = sentence.strip()
    if text.endswith("?"):
        return None if re.search(r"\b(?:[Ww]e|[Oo]ur|us)\b", text) else text
    if re.search(r"\b(?:is|was|are) not to\b|\b(?:aim|goal|objective|purpose) is for\b", text):
        return None
    for pattern, form in _AIMS:
        if match := pattern.match(text.rstrip(".")):
            parts = {name: value for name, value in match.groupdict().items() if value}
            parts["aim"] = _without_means(parts["aim"])
            if len(parts["aim"].split()) < 4 or re.match(
                r"\w+ (?:one|two|three|four|some|several|those|these|it|them|this)\b(?: that| which|$)", parts["aim"]
            ):
                return None
            return (
                form.format(**parts)
                .replace("is a algorithm", "is an algorithm")
                .replace("is a approach", "is an approach")
                .replace("a estimator", "an estimator")
                + "."
            )
    text = text.replace(" known to us", "")
    return None if re.search(r"\b(?:[Ww]e|[Oo]ur|us)\b", text) else text


def _without_means(text: str) -> str:
    """Cuts the means off, unless what is left would be a stump."""
    cut = _MEANS.sub("", text).rstrip(" ,;")
    return cut if len(cut.split()) >= 4 else text
