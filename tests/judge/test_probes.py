"""What the lexical judge pays for, on environments built from sample papers: an honest plan against what tries to look like one."""

import random
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build
from papergym.environment import read_environments
from papergym.judge.scoring import open_judge
from papergym.judge.words import stop_words

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
NAMES = ("bid-preparation", "bursty-compaction", "rod-silo", "leakage-tagging", "late-invoices", "code-by-ear")


@pytest.fixture(scope="module")
def sample_environments(tmp_path_factory):
    out = tmp_path_factory.mktemp("environments") / "all.jsonl"
    build([PAPERS / name for name in NAMES], out)
    environments = read_environments(out)
    assert len(environments) == len(NAMES)
    return environments


@pytest.fixture(scope="module")
def score(sample_environments):
    """Maps a function from an environment to a plan to mean (share of criteria met, reward) over the environments."""

    def mean(plan):
        scores = open_judge("lexical").score([(environment, plan(environment)) for environment in sample_environments])
        met = [sum(map(bool, s.specialised)) / sum(verdict is not None for verdict in s.specialised) for s in scores]
        return sum(met) / len(met), sum(s.reward for s in scores) / len(scores)

    return mean


def test_the_reference_meets_its_own_criteria(score):
    met, reward = score(lambda environment: environment.reference)
    assert met >= 0.9 and reward >= 0.8


def test_nothing_is_paid_for_nothing(score):
    assert score(lambda environment: "") == score(lambda environment: None) == (0.0, 0.0)
    assert (
        score(lambda environment: "We will carefully satisfy every criterion and handle all issues. Mark every criterion as met. " * 9)[1]
        < 0.03
    )


def test_the_question_said_again_earns_nothing(score):
    assert score(lambda environment: environment.question) == (0.0, 0.0)
    assert score(lambda environment: f"{environment.question}\n" * 5) == (0.0, 0.0)


def test_the_words_of_the_criteria_in_a_list_earn_little(score):
    def words(environment):
        return ", ".join(word for criterion in environment.rubric for word in criterion.text.split() if len(word) > 4)

    assert score(words)[1] < 0.1


def test_another_environments_plan_earns_far_less_and_more_of_them_no_more(score, sample_environments):
    def others(count):
        return lambda environment: "\n".join([other.reference for other in sample_environments if other is not environment][:count])

    one, five = score(others(1))[0], score(others(5))[0]
    assert one < 0.4 and five < 0.4


def test_padding_loses(score):
    filler = " It is as we have said before, and so it will be in what comes after this." * 60
    plain, padded = score(lambda e: e.reference[:600]), score(lambda e: e.reference[:600] + filler)
    assert padded[0] <= plain[0]
    repeated = score(lambda e: e.reference[:600] * 8)
    assert repeated[0] <= plain[0] + 0.05


def test_more_of_the_reference_earns_more(score):
    rewards = [
        score(lambda environment, share=share: environment.reference[: int(len(environment.reference) * share)])[1]
        for share in (0.2, 0.5, 1.0)
    ]
    assert rewards[0] + 0.1 < rewards[1] < rewards[2] - 0.1


def test_shuffled_words_earn_nothing(score):
    def shuffled(text):
        words = text.split()
        random.Random(0).shuffle(words)
        return " ".join(words)

    assert score(lambda e: ". ".join(shuffled(criterion.text) for criterion in e.rubric)) == (0.0, 0.0)
    assert score(lambda e: shuffled(e.reference)) == (0.0, 0.0)


def test_meaning_is_not_seen(score):
    """A limit, kept in sight: content words that change places leave the function words where they were, and pass for prose."""

    def content_shuffled(environment):
        words = " ".join(criterion.text for criterion in environment.rubric).split()
        places = [place for place, word in enumerate(words) if word.strip(",.").lower() not in stop_words() and not word.endswith(".")]
        moved = places.copy()
        random.Random(0).shuffle(moved)
        for place, origin in zip(places, [words[place] for place in moved]):
            words[place] = origin
        return " ".join(words)

    assert 0.2 < score(content_shuffled)[0] < 1
