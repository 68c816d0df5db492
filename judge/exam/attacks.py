"""Plans that look like one, or pad one: each attack makes a plan for an environment, or None where it has no material for it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from papergym.environment import Environment
from papergym.judge.exam.labels import Labels
from papergym.judge.words import all_words, common_stems, content_words, sentences, stem, stop_words

Attack = Callable[[Environment, Labels], str | None]

_BOILERPLATE = (
    "We will run a randomised controlled experiment on {subject}. First we collect data on {subject} from a sample and record every "
    "measurement. We then randomly assign each case to a treatment group or to a control group, because this rules out other "
    "explanations. We compare the groups with a baseline and repeat the test several times, so that the results are reliable. The "
    "effect is estimated with a regression model, and we report the mean with its interval. Finally we vary the settings and measure "
    "how much {subject} changes."
)


def reference(environment: Environment, _: Labels) -> str | None:
    return environment.reference


def written(environment: Environment, labels: Labels) -> str | None:
    return labels.plans.get(environment.id)


def written_four_times(environment: Environment, labels: Labels) -> str | None:
    plan = written(environment, labels)
    return plan and "\n".join([plan] * 4)


def written_and_foreign(environment: Environment, labels: Labels) -> str | None:
    plan = written(environment, labels)
    return plan and f"{plan}\n{foreign(environment, labels)}"


def question(environment: Environment, _: Labels) -> str:
    return environment.question


def question_five_times(environment: Environment, _: Labels) -> str:
    return "\n".join([environment.question] * 5)


def words_listed(environment: Environment, _: Labels) -> str:
    return ", ".join(_shuffled(word for word in _rubric_words(environment) if word not in stop_words()))


def words_shuffled(environment: Environment, _: Labels) -> str:
    return _in_sentences(_shuffled(_rubric_words(environment)))


def reference_shuffled(environment: Environment, _: Labels) -> str:
    return _in_sentences(_shuffled(all_words(environment.reference or "")))


def sentences_shuffled(environment: Environment, _: Labels) -> str:
    return " ".join(" ".join(_shuffled(sentence.rstrip(".").split())) + "." for sentence in sentences(environment.reference or ""))


def content_words_swapped(environment: Environment, _: Labels) -> str:
    """The criteria with their content words in each other's places: function words stay where they were, so it sounds like prose."""
    words = " ".join(criterion.text.rstrip(".") + " ." for criterion in environment.rubric).split()
    places = [place for place, word in enumerate(words) if word.isalpha() and word.lower() not in stop_words()]
    for place, word in zip(places, _shuffled(words[place] for place in places), strict=True):
        words[place] = word
    return " ".join(words).replace(" .", ".")


def criteria(environment: Environment, _: Labels) -> str:
    return " ".join(criterion.text for criterion in environment.rubric)


def one_rare_word(environment: Environment, _: Labels) -> str:
    return _naming(_rare_words(environment)[:1], environment)


def rare_words(environment: Environment, _: Labels) -> str:
    return _naming(_rare_words(environment), environment)


def boilerplate(environment: Environment, _: Labels) -> str:
    return _BOILERPLATE.format(subject=_subject(environment))


def question_and_boilerplate(environment: Environment, labels: Labels) -> str:
    return f"{environment.question} {boilerplate(environment, labels)}"


def foreign(environment: Environment, labels: Labels) -> str | None:
    return _others(environment, labels)[4].reference


def five_foreign(environment: Environment, labels: Labels) -> str:
    return "\n".join(other.reference or "" for other in _others(environment, labels)[:5])


ATTACKS: Mapping[str, Attack] = {
    "the reference plan": reference,
    "the criteria word for word": criteria,
    "a competent plan in other words": written,
    "that plan four times": written_four_times,
    "that plan, then another paper's reference": written_and_foreign,
    "an empty plan": lambda *_: "",
    "the question": question,
    "the question five times": question_five_times,
    "the criteria's words as a list": words_listed,
    "the criteria's words in no order": words_shuffled,
    "the reference's words in no order": reference_shuffled,
    "the reference, each sentence shuffled": sentences_shuffled,
    "the criteria, content words swapped": content_words_swapped,
    "one rare word of the first criterion": one_rare_word,
    "a rare word of every criterion": rare_words,
    "boilerplate on the subject": boilerplate,
    "the question, then boilerplate": question_and_boilerplate,
    "another paper's reference": foreign,
    "five other papers' references": five_foreign,
}


def _rubric_words(environment: Environment) -> list[str]:
    return [word for criterion in environment.rubric for word in all_words(criterion.text)]


def _others(environment: Environment, labels: Labels) -> list[Environment]:
    """The other environments, from the next one on."""
    ids = sorted(labels.environments)
    place = ids.index(environment.id)
    return [labels.environments[name] for name in ids[place + 1 :] + ids[:place]]


def _rare_words(environment: Environment) -> list[str]:
    """One word of each criterion that few criteria, no plan in general and not the question hold."""
    asked = set(content_words(environment.question)) | common_stems() | stop_words()
    frequency = Counter(name for criterion in environment.rubric for name in set(content_words(criterion.text)))
    own = [
        [word for word in all_words(criterion.text) if word not in stop_words() and stem(word) not in asked]
        for criterion in environment.rubric
    ]
    return [min(words, key=lambda word: (frequency[stem(word)], -len(word))) for words in own if words]


def _naming(words: list[str], environment: Environment) -> str:
    return " ".join(f"We look at {word} and {_subject(environment)}." for word in words)


def _subject(environment: Environment) -> str:
    """The two commonest words of the question that aren't words of any plan."""
    words = [word for word in all_words(environment.question) if word not in stop_words() and stem(word) not in common_stems()]
    return " and ".join(word for word, _ in Counter(words).most_common(2))


def _shuffled(words: Iterable[str]) -> list[str]:
    return random.Random(0).sample(found := list(words), len(found))


def _in_sentences(words: list[str], length: int = 15) -> str:
    return " ".join(" ".join(words[start : start + length]) + "." for start in range(0, len(words), length))
