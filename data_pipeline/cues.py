"""What a section's title and a sentence's wording say about its part in a paper. Every list here is a rule that a reader can argue with."""

import re

from papergym.data_pipeline.clips import NOTED
from papergym.data_pipeline.english import verb_forms
from papergym.data_pipeline.math_text import DISPLAY, HOLE
from papergym.data_pipeline.words import words

# A section's role, by title; the first pattern that matches counts.
_ROLES = tuple(
    (role, re.compile(pattern, re.IGNORECASE))
    for role, pattern in (
        ("skip", r"acknowledg|conclu|limitation|\blimits\b|future|outlook|availab|funding|author|conflict|ethic|reproducib|supplement|"
        r"referenc|disclos|"
                 r"keyword|implication|organi[sz]ation|outline|broader|impact statement|nomenclature|glossary|implications|takeaway|"
                 r"lessons|caveat"),
        ("background", r"related|literature|previous|prior work|state of the art|preliminar"),
        ("results", r"^(?:main |empirical |experimental |numerical |simulation |our |the )*results?\b|^findings|^estimates$|"
        r"^outcomes?\b|what we (?:find|found|see|saw|observe)|"
                    r"^(?:results and )?discussion|^performance|what follows"),
        ("experiment", r"design of (?:the |our )?(?:experiment|stud|evaluation|trial|survey)|(?:experiment\w*|study|survey|trial) design"),
        ("method", r"strategy|identificat|estimand|^methods?$|design of|designing"),
        ("experiment", r"experiment|evaluat|simulat|\bdata\b|dataset|data set|empiric|set-?up|calibrat|parameteri[sz]ation|observ|"
        r"measurement|validat|"
                       r"case stud|benchmark|protocol|sample|survey|baseline|robustness|ablation|test|trial|comparing|comparison|"
                       r"comparative|campaign|"
                       r"examples?\b|\bstudy\b|analysis plan|procedure|participants|\btasks?\b|measures|\bdevice|controls?\b|"
                       r"annotation|material|exposure"),
        ("results", r"result|finding|discussion|summary|performance|outcome|analysis"),
        ("introduction", r"introduc|motivat|problem|\bbackground|question|setting the|why\b|context|overview$"),
        ("method", r"method|approach|model|theor|algorithm|design|framework|architectur|estimat|formulat|system|implement|identif|"
        r"strateg|construct|"
                   r"proposed|training|technique|derivation|solver|apparatus|instrument|materials|scheme|mechanism|curation|workflow|"
                   r"learning|inference|representation|objective|loss|numerics|module|features|specification"),
    )
)  # fmt: skip
# Where a paper stops telling what is known and begins to tell what it does.
TURN = re.compile(
    r"\b(?:in|with) this (?:paper|work|[Ll]etter|article|study|manuscript|contribution|report|note)\b|\b[Hh]ere,? (?:we|I)\b|"
    r"\b(?:our|this) (?:paper|work|[Ll]etter|study|manuscript|article|contributions?)\b|\bwe (?:here|now) \w+|"
    r"\b[Ww]e (?:present|propose|introduce|develop|describe|report|provide|study|investigate|examine|address|consider|show|"
    r"demonstrate|ask|aim|seek|"
    r"analy[sz]e|evaluate|measure|estimate|test|build|design|argue|derive|use|separate|exploit|model|treat|combine|compare|train|run)\b"
)
GAP = re.compile(
    r"\b(?:unknown|unclear|not (?:yet )?(?:known|clear|understood|settled|obvious|possible)|open (?:question|problem)|"
    r"remains? (?:open|an open|unclear|unknown|"
    r"elusive|poorly|challenging|difficult|to be|unsolved|unexplored|unsettled)|(?:is|are) open\b|poorly understood|"
    r"little (?:is|systematic|evidence|attention|known)|few studies|no (?:study|one|method|systematic|consensus|agreed|direct|test|"
    r"existing|data|theory|way)|nobody|"
    r"lacks?\b|lacking|limited (?:to|by|in|understanding|systematic|view)|fails?\b|cannot (?:be|tell|distinguish|explain|separate|"
    r"handle|say)|"
    r"prohibitive|intractable|"
    r"not been|nobody|has never|have never|too (?:slow|costly|expensive)|difficult to|hard to|challeng|shortcoming|drawback|"
    r"unfortunately|simplifying assumptions|at odds|contradict|disagree|confound|puzzl|need(?:ed)? (?:for|to)|require[sd]? (?:for|to)|"
    r"rarely|seldom|"
    r"none of|only considers?|not designed|do(?:es)? not (?:account|hold|carry|apply|capture|tell|say|explain|cover|scale|distinguish|"
    r"allow|work)|"
    r"question (?:is|of|whether|remains)|what is (?:not known|missing|needed)|unsettled|no \w+ known)\b"
    r"|^However\b|^Yet\b|^But\b",
    re.IGNORECASE,
)
AIM = re.compile(
    r"\b(?:[Ww]e|I) (?:therefore |thus |here |then |also )*(?:ask|aim|seek|want|set out|wish|investigate|study|examine|explore|assess|"
    r"address|test whether|quantify|"
    r"determine|measure|analy[sz]e|evaluate|estimate)\b|"
    r"\b(?:aim|goal|objective|purpose) (?:of|is|here|was)\b|\b(?:open|key|central|crucial|main|natural|obvious) (?:question|matter|"
    r"problem)\b|"
    r"\b(?:question|problem) (?:is|that|we|of)\b|\?$|\b(?:unknown|unclear|not (?:yet |been )*(?:known|answered|established|settled|"
    r"understood)|unsettled|"
    r"(?:is|are|remains?) (?:therefore |thus |also )?(?:an )?open(?![- ](?:source|access)))\b"
)
BUILD = re.compile(
    r"\b[Ww]e (?:here |therefore |thus )?(?:present|propose|introduce|develop|describe|design|build|provide|report)\b|\bpresents?\b|"
    r"\bdescribes?\b"
)
RESULT = re.compile(
    r"\b(?:we|I) (?:(?:also|then|now|indeed|do|again|thus|therefore|can|clearly|further|furthermore|only) )*(?:find|found|observed?|"
    r"show|showed|see|saw|notice[sd]?|conclude[sd]?|"
    r"demonstrated?|confirm(?:ed)?|discover(?:ed)?|learn(?:ed)?|infer that|recover(?:ed)? (?:a|the)|note that|expect|believe|hope|"
    r"emphasi[sz]e|stress|speculate|acknowledge|suspect)\b|"
    r"\b(?:results?|findings?|outcomes?|evidence|observations?|experiments?|simulations?|analysis|data|estimates?|trend|figure|plot|"
    r"curves?|this|it|which) (?:then |also |clearly |thus |therefore |again |strongly |further )*"
    r"(?:shows?|showed|indicates?|indicated|suggests?|suggested|reveals?|revealed|confirms?|confirmed|demonstrates?|demonstrated|"
    r"highlights?|implies|imply|illustrates?|supports?)\b|"
    r"\bour (?:results?|findings?|analysis shows)\b|\boutperform|\bstate-of-the-art (?:performance|results|accuracy)\b|"
    r"\b(?:significantly|substantially|markedly|considerably|dramatically|consistently|remarkably|surprisingly|interestingly|notably|"
    r"strikingly|intriguingly)\b|"
    r"\b(?:rose|fell|dropped|increased|decreased|declined|gained|lost|improved|worsened|grew|shrank|cost) (?:by|from|to|about|only|"
    r"more|less|\d)|"
    r"\b(?:improves?|reduces?|increases?|decreases?|lowers?|raises?|exceeds?|beats?|cuts?) (?:\w+ ){0,4}by (?:about |roughly |up to |"
    r"over )?\d|"
    r"\bha(?:s|ve) (?:increased|decreased|risen|fallen|grown|dropped)\b|"
    r"\b(?:worse|(?!rather|other)\w{3,}er|more \w+|less \w+) than (?:the |any |all |"
    r"every |either |in |for |that |those |on |with |most )|"
    r"\b(?:achieves?|achieved|attains?|attained|reaches|reached) (?:an? )?(?:\w+ ){0,3}\d|"
    r"\bp\s*[<=>]\s*0?\.\d|±\s*\d|\d\s*±|\bwith an accuracy of\b|\d\.\d+\(\d+\)|\bas expected\b|\bwas \d+\.\d|\b(?:seems?|"
    r"appears?) (?:to |better|"
    r"more|less|quite)|\bit turns out\b|\b(?:is|are|was|were) found to\b|\b(?:very|quite|perfectly|closely) (?:well|close|similar|good)\b|"
    r"(?<!\bwe )(?<!\bplan )\bsuggest(?:s|ed) (?:an?|the|that)\b|"
    r"(?<!\bwe )(?<!\bplan )\b(?:shows?|exhibits?|displays?) (?:an?|no|little|clear|strong|good)\b|"
    r"\b(?:is|are|was|were) (?:relatively|nearly|almost|roughly|about|approximately) (?:constant|flat|half|twice|equal|the same|unchanged|"
    r"independent|zero|linear)\b|"
    r"\bnot significant|\bsignificant(?:ly)?\b(?! (?:figures?|digits?|bits?|level|wave))|\b(?:best|worst)[- ]performing\b|"
    r"\bthe best\b|\bthe model (?:fits|matches|captures|reproduces|predicts)\b|"
    r"\bagree(?:s|ment|d)? (?:very |quite |well |nicely |closely )?(?:well|with|between|breaks)\b|\bhas little to do\b|\bturned out\b|"
    r"\bcoincide[sd]?\b|\b(?:excellent|good) (?:agreement|fit|match)\b",
    re.IGNORECASE,
)  # fmt: skip
# Words of a decision: a number beside one of these was chosen, not found.
_DESIGNED = re.compile(
    r"\b(?:we (?!find|found|obtain|see|saw|recover)\w+|each|every|at least|at most|set|fixed|held constant|drawn|chosen|kept|assigned|"
    r"injected|thresholds?|between|sampled|random\w*|until|"
    r"split|participants|recruited|collected|calibrated|fitted|trained|selected|pilot|budget|limit(?:ed)?|simulated|excluded|matched|"
    r"repeated|seeds?)\b",
    re.IGNORECASE,
)
_STRONG_NUMBER = re.compile(r"(?:\d\s?%|\bper ?cent|\bpercentage points?|\btimes (?:faster|larger|more|better))")
_OUTCOME_NUMBER = re.compile(
    r"\b(?:was|were|fell|rose|lay|took|had|held|gave|came|located|lowered|raised|cost|passed|stayed|ranged|varied|lost|gained|agreed|"
    r"exceeded|moved|predicted|explained|"
    r"reduced|improved|warned|recovered|named|found|shortened|needed|contributed|dropped|grew|averaged|differed)\b.*?(?:\d\.\d|\d\s?%|"
    r"\bper cent|\btimes\b|\bhalf\b|\bthird\b)"
    r"|\b(?:did not|does not) (?:move|differ|change|matter|help|respond|hurt)\b|\bagainst \d|\binterval \d|\bwithin \w+ points\b"
)
_OUTCOME_VERB = re.compile(r"\b(?:was|were|had|has|lay|came|explains?|accounts? for|accounted)\b")
METHOD_CUE = re.compile(
    r"\b(?:we|our) \w+|\b(?:is|are|was|were) (?:\w+ly )?\w+(?:ed|en|wn|un|ut|lt|pt|ght)\b|\b(?:algorithm|model|estimator|loss|network|"
    r"kernel|scheme|procedure|assum)\w*"
)
EXPERIMENT_CUE = re.compile(
    r"\b(?:experiments?|evaluat\w+|compar\w+|baselines?|measur\w+|record\w*|datasets?|data sets?|benchmarks?|sampl\w+|participants?|"
    r"subjects?|respondents?|volunteers?|"
    r"trials?|repeat\w*|replicat\w+|simulations?|simulate[sd]?|seeds?|runs?\b|control\w*|ablations?|robust\w*|held[- ]out|"
    r"cross-validation|bootstrap|uncertaint\w+|"
    r"error bars?|vary|varied|varies|sweep|randomi[sz]\w*|random order|placebo|regress\w*|confidence interval|metrics?|statistic\w*|"
    r"calibrat\w+|validat\w+|check\w*|"
    r"test(?:s|ed)?\b|for each of|at least \d|rivals?|series|survey\w*|observ\w+|exposures?|likelihood on|permutation|split)\b",
    re.IGNORECASE,
)
# What makes a design sentence worth keeping: it says why, against what, with what guard.
RATIONALE = re.compile(
    r"\b(?:so that|because|since|in order to|to (?:avoid|ensure|prevent|separate|isolate|control|test|check|rule out|keep|account|"
    r"reduce|allow|distinguish|remove|exclude|limit|make)|"
    r"instead of|rather than|without|unless|only (?:if|when|those)|independent(?:ly)?|never|not allowed|against|such that|whose|"
    r"excluded?|dropped|discarded|except|"
    r"by construction|in place of|as a (?:check|control|placebo|baseline|robustness))\b"
)
_DANGLING = re.compile(
    r"^(?:[\"'(]?)(?:(?:However|Moreover|Furthermore|Thus|Hence|Therefore|Then|So|And|But|Yet|Also|Still|Again|Instead|Nevertheless|"
    r"Nonetheless|Consequently|Accordingly|"
    r"In addition|Additionally|For example|For instance|Indeed|Finally|Fortunately|Unfortunately|In particular|Similarly|Likewise|"
    r"In contrast|By contrast|Conversely|"
    r"As a result|In other words|That is|Specifically|In fact|On the other hand|On the contrary|Of course|Otherwise|Rather|"
    r"Note that)\b,? ?)?"
    r"(?:this|these|those|that|it|its|they|their|them|such|he|she|his|her|here(?!,? (?:we|for|the)\b)|there(?:by|in|after)|both|"
    r"another|others|neither|either|each of (?:these|them)|"
    r"(?:in|at|for|with|under|from|to|on|by|of|as|after|before|like|unlike|using|given|despite|besides|beyond|"
    r"during) (?:this(?! (?:paper|work|letter|study|article|manuscript|report|note))|these|that|those|such|it|them|their|its|both|"
    r"doing so|so doing)|"
    r"the (?:(?:first|second|third|fourth|last)(?= (?:one|is|was|are|of|step|approach|method|data|kind|term|pattern|prediction|pass|"
    r"uses?|two|three|case))|"
    r"(?:two|three|four)(?= (?:are|were|is|differ|methods|approaches|cases|latter|former|steps))|other|others|same|rest|"
    r"resulting|former|latter|above|following|remaining|next|opposite|question then|latter's|key|"
    r"(?:results?|reason|idea|difference|premise|answer|argument|effect|point|intuition|approach|procedure)(?! (?:of|between|in|that|"
    r"for|to|on)\b))|"
    r"all (?:of )?(?:this|these|those|three|two|four|five)|some of (?:these|them)|most of (?:these|them)|one of (?:these|them)|"
    r"none of (?:these|them)|doing so|to do (?:so|this|that)|"
    r"to this end|as (?:such|before|above|mentioned|noted|discussed|described|shown|explained|expected|a result|a consequence)|"
    r"because of this|"
    r"(?:for|of|to|with) the (?:former|latter)|in (?:all|both|either|each|any|the former|the latter|the same|the first|the second|"
    r"the other) (?:cases?|way|one|setting|limit|respect|vein|spirit)?|else|once again|here too)\b",
    re.IGNORECASE,
)
_EXPLETIVE = re.compile(
    r"^(?:However, |Yet |Thus |Hence |Therefore,? )?[Ii]t (?:therefore |thus |also |still |then )*(?:is|remains|was|has|may|can|would|"
    r"seems|follows)\b[^,;]{0,70}?\b"
    r"(?:that|whether|how|which|why|what|where|when)\b|^This (?:paper|work|letter|study|article|manuscript)\b"
)
_CONNECTIVE = re.compile(
    r"^(?:However|Moreover|Furthermore|Thus|Hence|Therefore|Then|So|And|But|Yet|Also|Still|Again|Instead|Nevertheless|Nonetheless|"
    r"Consequently|Accordingly|For example|"
    r"For instance|Indeed|Similarly|Likewise|In contrast|By contrast|Conversely|As a result|In other words|That is|In fact|"
    r"On the other hand|On the contrary|Otherwise|"
    r"Rather|Alternatively|Meanwhile|Fortunately|On top of that|The same|Not only|Even (?:so|then)|At the same time)\b"
)
_OPENS_ACTION = re.compile(
    r"(?:Instead of|In|With|For|Using|Given|Based on|Following|Besides|From|To \w+|Unlike) [^,]{0,80}"
    r"\b(?:this|(?:in|of|for|with|from|by) that|these|those|such)\b[^,]{0,60},(?: here,)? we\b|"
    r"(?:The|Our) (?:key|main|central|basic|core) idea (?:is|was) to\b|(?:To (?:do so|this end)|For this (?:purpose|reason)|"
    r"In (?:addition|practice)|Then|Next|Moreover|Furthermore|Also|Thus|Therefore|Hence|Instead|Additionally),? we\b"
)
_POINTER = re.compile(
    r"(?i)\b(?:figs?|figures?|tables?|tabs?|eqs?|eqns?|equations?|secs?|sections?|appendix|appendices|algorithms?|refs?|theorem|lemma|"
    r"panels?|supplement\w*|listing|footnote)\b\.? ?"
    r"(?:\d|\(|[A-Z]\b|S\d)|\b(?:section|appendix|supplement(?:ary|al)?|figure|footnote|manuscript|sec\.|fig\.|eq\.|eqs\.|figs\.)(?:\W|$)|"
    r"\b(?:see below|see above|described (?:above|below|in)|defined (?:above|below|in)|mentioned above|shown (?:above|below|in)|"
    r"discussed (?:above|below|in)|the text|next section|"
    r"@|\bDepartment of\b|previous section|following (?:sections?|pages)|remainder of (?:this|the)|rest of (?:this|the) (?:paper|"
    r"article|letter)|for details|more details|https?:|www\.|github|zenodo)"
)
# A trial told among the methods.
TRIAL = re.compile(
    r"\b(?:placebos?|pre-?trends?|robustness|ablations?|held[- ]out|baselines?|as a (?:check|control|comparison)|falsification|"
    r"validat\w+ (?:the|against|on|by)|cross-validation|permutation test|bootstrap)\b",
    re.IGNORECASE,
)
# Surely a trial, whatever the section: for papers whose titles don't tell method and experiment apart.
TRIED = re.compile(
    rf"{TRIAL.pattern}|\b(?:compar(?:e|es|ed|ison|isons)|measured|recorded|datasets?|data sets?|benchmarks?|participants?|volunteers?|"
    r"simulations?|simulated?|sampled|repeated|seeds?|observed|observations|exposures?|randomi[sz]ed|evaluated|calibrated|survey(?:s|ed)?)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^(?:\(?[ivx\d]{1,4}[).]|[•\-–])\s")


# Talk about the paper, its future or its readers, in the form of a decision.
META = re.compile(
    r"\b[Ww]e (?:(?:now|first|then|also|will|would|can|further|next) )*(?:turn to|turn our|ask|pose|seek|aim|"
    r"want to know|wish|return|present|propose|introduce|discuss|"
    r"describe|summari[sz]e|outline|review|refer|call|denote|recommend|encourage|"
    r"suggest|hope|strive|gain|make no|are confident|argue|leave (?:this|it|that|the)|did not attempt|do not attempt|remark|mention|"
    r"point out|thank|plan to|intend|might|could|detail|explain|list|"
    r"provide (?:an|a) (?:overview|brief|detailed|description)|are interested|are able|were able|have (?:seen|shown|found|described|"
    r"presented|discussed))\b|"
    r"\b(?:in the literature|can be (?:interpreted|seen|thought|understood|viewed)|is beyond|future (?:work|research|studies)|"
    r"other projects|readers?|can be found|is available|"
    r"are available|will be required|open[- ]source nature|contributors?)\b|"
    r"\b(?:points?|lines?|curves?|colou?rs?|panel|bars?|symbols?|shaded \w+|legend) (?:represents?|shows?|denotes?|indicates?|"
    r"depicts?|marks?)\b|"
    r"\b(?:black|grey|gray|red|blue|green|shaded|dashed|solid|dotted) (?:histograms?|regions?|lines?|curves?|areas?|dots|points)\b",
    re.IGNORECASE,
)
# What an abstract or introduction announces rather than plans.
ANNOUNCE = re.compile(
    r"\b[Ww]e (?:also |here |then |first |further )*(?:report|provide|release|obtain|derive|demonstrate|illustrate|offer|make|contribute|"
    r"apply|have)\b|\bopen[- ]source\b"
)
# Words of general statements: what is often so is not what was decided.
GENERIC = re.compile(
    r"\b(?:widely|popular|well[- ]known|important|many|various|several|often|usually|typically|generally|commonly|can|may|most|could|"
    r"might|would|likely|perhaps|essentially|upcoming|"
    r"in some (?:settings|cases)|existing|recent\w*|in general|tends?|always possible|not possible|sometimes|best \w* ?practices?|"
    r"extraordinar\w+)\b",
    re.IGNORECASE,
)


# What the world does by itself: "is excited by noise" is no decision.
_NATURES = words(
    "excite mark relate drive cause damp reward affect govern explain dominate expect believe concern correlate associate encourage impact "
    "characterise characterize know call see find observe motivate inspire say describe discuss mention interpret require need"
)


def is_action(sentence: str) -> bool:
    """Says that something is done on purpose: "we" or "the plan" with a research verb, or a passive of one that nature doesn't do."""
    forms = verb_forms()
    if sentence.split(" ", 1)[0].lower() in NOTED or re.match(r"(?:The|Our) (?:\w+ )?idea (?:is|was) to ", sentence):
        return True
    for match in re.finditer(
        r"\b[Ww]e (?:\w+ly |also |then |first |next |thus |therefore |moreover |further |again |only |do not |did not |have |never )*(\w+)",
        sentence,
    ):
        if match.group(1) in forms["base"] or match.group(1) in forms["past"]:
            return True
    return bool(re.search(r"\b[Tt]he plan \w", sentence)) or any(
        m.group(1) in forms["past"] and forms["past"][m.group(1)] not in _NATURES
        for m in re.finditer(r"\b(?:is|are|was|were|been|be) (?:\w+ly |then |also |never |always |first |not )?([\w-]+)", sentence)
    )


def section_role(title: str) -> str | None:
    """ "introduction" | "background" | "method" | "experiment" | "results" | "skip", or None when the title says nothing."""
    return next((role for role, pattern in _ROLES if pattern.search(title)), None)


def is_whole(sentence: str) -> bool:
    """A sentence that can be quoted: whole, in words, pointing to nothing outside itself but possibly to the sentence before it."""
    words = len(sentence.split())
    return (
        5 <= words <= 70
        and HOLE not in sentence
        and DISPLAY not in sentence
        and sentence[-1] in ".?\"')"
        and sentence.rstrip("\"')")[-1:] in (".", "?")
        and (sentence[0].isupper() or sentence[0] in "\"'(" or sentence[0].isdigit())
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
        and not sentence.startswith("(")
        and not _POINTER.search(sentence)
        and not _ITEM.match(sentence)
        and symbol_share(sentence) < 0.16
    )


def is_dangling(sentence: str) -> bool:
    """Begins with a word whose meaning lies in an earlier sentence."""
    return bool(_DANGLING.match(sentence)) and not _EXPLETIVE.match(sentence)


def opens_action(sentence: str) -> bool:
    """ "To do so, we ...", "The key idea is to ...": tied to the sentence before, but what follows stands by itself."""
    return bool(_OPENS_ACTION.match(sentence)) and not re.search(r"\bwe (?:\w+ ){1,2}(?:them|it|this|these)\b", sentence)


def leans_back(sentence: str) -> bool:
    """Needs the sentence before it: dangling, or tied to it by a connective."""
    return is_dangling(sentence) or bool(
        _CONNECTIVE.match(sentence) or re.search(r"\b(?:that|whether|how) such (?!as\b|that\b)\w", sentence)
    )


def is_result(sentence: str) -> bool:
    """States an outcome rather than a design decision."""
    design = _DESIGNED.search(sentence)
    return bool(
        RESULT.search(sentence)
        or (_OUTCOME_NUMBER.search(sentence) and not design)
        or (_STRONG_NUMBER.search(sentence) and _OUTCOME_VERB.search(sentence) and not design)
    )


def symbol_share(sentence: str) -> float:
    """Share of characters that are neither letters, blanks nor ordinary punctuation; digits count for little."""
    odd = sum(1.0 for c in sentence if not (c.isalnum() or c.isspace() or c in ".,;:'\"()-–—?/%")) + sum(
        1.0 for c in sentence if "\u0370" <= c <= "\u03ff"
    )
    odd += 0.3 * sum(character.isdigit() for character in sentence)
    return odd / max(len(sentence), 1)
