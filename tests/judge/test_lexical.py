import math
import time

import pytest

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.coverage import CoverageRule, passages, rubric_coverage, rubric_verdicts, rubric_weights
from papergym.judge.scoring import combine, open_judge

QUESTION = "Public buyers see few bids. How can entry be raised?"
STIPEND = "Losers receive a stipend that covers half of the preparation cost."
FEEDBACK = "Rivals learn the winning price and their rank after each auction."
RULE = CoverageRule(topic_words=0)  # the subject has a test of its own


def environment(*criteria, question=QUESTION, **options):
    rubric = tuple(c if isinstance(c, Criterion) else Criterion(c) for c in criteria)
    return Environment(id="e", domain="econ", question=question, rubric=rubric, **options)


def test_weights_by_hand():
    """Two criteria, one word in both, two in the question, one of any plan: idf = log(1 + 2 / df) / log 3. "Plan" is no word of them."""
    weights = rubric_weights(QUESTION, ("In the plan: stipend, tender, bids, auction", "auction, method, silo, entry"), RULE)
    both = math.log(2) / math.log(3)
    assert weights == [
        {"stipend": 1.0, "tend": 1.0, "bid": RULE.asked_weight, "auct": pytest.approx(both)},
        {"auct": pytest.approx(both), "method": pytest.approx(RULE.common_weight), "silo": 1.0, "entr": RULE.asked_weight},
    ]


def test_one_word_of_a_criterion_covers_nothing():
    subject, one = environment("stipend tender auction rank"), "We pay a stipend to the loser. "
    assert rubric_coverage(subject, one, RULE) == rubric_coverage(subject, one * 50, RULE) == [0.0]
    assert rubric_coverage(subject, one, CoverageRule(topic_words=0, least_words=1)) == [pytest.approx(0.25)]


def test_a_passage_speaks_for_the_criterion_it_covers_most():
    """Of the passage, two words in four are the first criterion's and two in five the second's; another passage serves the second."""
    subject = environment("stipend tender auction rank", "stipend tender silo arch clog")
    plan = "We pay a stipend in a tender. "
    assert rubric_coverage(subject, plan, RULE) == [pytest.approx(sum_share([1, 1, 2, 2])), 0.0]
    both = plan + "So it was for us as well. " * 3 + "We see a silo and an arch in it."
    first, second = rubric_coverage(subject, both, RULE)
    assert first == pytest.approx(sum_share([1, 1, 2, 2])) and second == pytest.approx(sum_share([2, 2, 1, 1, 2]))


def sum_share(frequencies):
    """Share of the first two words (both df 1 or both df 2) in the weight of a criterion of a rubric of two; 1 marks a word in both."""
    idf = {1: math.log(2) / math.log(3), 2: 1.0}
    return sum(idf[f] for f in frequencies[:2]) / sum(idf[f] for f in frequencies)


def test_coverage_by_hand():
    subject = environment("stipend tender auction rank")
    assert rubric_coverage(subject, "We pay a stipend to the loser of a tender.", RULE) == [pytest.approx(0.5)]
    assert rubric_coverage(subject, "We pay a stipend. It is for all of the ranks in auctions and for a tender.", RULE) == [1.0]
    assert rubric_coverage(subject, "", RULE) == [0.0]


def test_words_of_a_criterion_must_stand_together():
    subject, filler = environment("stipend tender auction rank"), "It is as it was for us. "
    together = "We have a stipend and a tender in it. " + "It has an auction and a rank. "
    assert rubric_coverage(subject, together, RULE) == [1.0]
    assert rubric_coverage(subject, together.replace("in it. ", "in it. " + 3 * filler), RULE) == [pytest.approx(0.5)]
    run_on = "we have a stipend and a tender " + "and so it is with us as well " * 30 + "and an auction and a rank"
    assert rubric_coverage(subject, run_on, RULE) == [pytest.approx(0.5)]  # a sentence without end is no passage


def test_saying_it_twice_adds_nothing():
    subject = environment("stipend tender auction rank")
    once = "We pay a stipend to the loser of a tender. "
    assert rubric_coverage(subject, once, RULE) == rubric_coverage(subject, once * 50, RULE) == [pytest.approx(0.5)]


def test_long_plans_have_to_cover_more():
    """Half of the criterion is covered: enough for 0.25 up to four times the free length, where the threshold is 0.25 · sqrt(4) = 0.5."""
    subject, rule = environment("stipend tender auction rank"), CoverageRule(threshold=0.25, free_words=10, topic_words=0)
    plan = "We pay a stipend to losers in a tender. "
    padding = ["so", "it", "is", "as", "it", "was"] * 6
    words = 7  # of two letters or more in the plan
    for length, verdict in ((10, True), (40, True), (41, False)):
        assert rubric_verdicts(subject, plan + " ".join(padding[: length - words]), rule) == [verdict]
    everything = " It has a rank and an auction."
    assert rubric_verdicts(subject, " ".join(padding * 50) + ". " + plan + everything, rule) == [True]  # the threshold ends at 1


def test_what_the_question_says_does_not_count():
    subject = environment("Entry of public buyers is raised by a stipend, a rank and an auction")
    assert rubric_coverage(subject, QUESTION, RULE) == [0.0]
    entry = 3 / (3 + 4 * RULE.asked_weight)  # entry, public, buyer and raise stand in the question
    assert rubric_coverage(subject, "We give a stipend by rank in an auction.", RULE) == [pytest.approx(entry)]
    with_entry = (1 + RULE.asked_weight) / (3 + 4 * RULE.asked_weight)
    assert rubric_coverage(subject, "We pay a stipend for entry.", RULE) == [pytest.approx(with_entry)]
    assert rubric_coverage(environment("Few bids: entry of public buyers is raised"), QUESTION, RULE) == [None]  # nothing but the question


def test_a_passage_off_the_subject_does_not_count():
    subject, plan = environment("stipend tender auction rank"), "We pay a stipend to the loser of a tender. It is so. It is as it was."
    rule = CoverageRule()
    assert rubric_coverage(subject, plan, rule) == [0.0]
    assert rubric_coverage(subject, plan.replace("the loser", "buyers who lose"), rule) == [pytest.approx(0.5)]
    assert rubric_coverage(subject, f"{plan} It was so. Buyers see few bids.", rule) == [0.0]  # the subject, but elsewhere
    assert rubric_coverage(environment("stipend tender auction rank", question="What is the best method?"), plan, rule) == [
        pytest.approx(0.5)
    ]


def test_a_sentence_that_quotes_a_criterion_says_nothing():
    """Eight words of the criterion in a row, unless the reference or the question has them too; the words in between count in full."""
    criterion = "In the plan the losers then get a stipend of half of the cost by rank."
    subject, quoted = environment(criterion), "We say that in the plan the losers then get a stipend."
    own = "We give the losers a stipend by rank."
    assert rubric_coverage(subject, quoted, RULE) == [0.0]
    assert rubric_coverage(subject, quoted.replace("that in", "that, in"), RULE) == [0.0]  # marks are no words
    assert rubric_coverage(subject, quoted.replace("get a", "get one"), RULE)[0] > 0.3  # seven words, then another
    assert rubric_coverage(subject, f"{quoted} {own}", RULE) == rubric_coverage(subject, own, RULE)
    known = environment(criterion, reference="So in the plan the losers then get a stipend.")
    assert rubric_coverage(known, quoted, RULE) == rubric_coverage(subject, quoted.replace("get a", "get one"), RULE)


def test_a_list_of_words_is_no_passage():
    subject = environment(STIPEND, FEEDBACK, reference=f"{STIPEND} {FEEDBACK}")
    words = " ".join(f"{c.text} " for c in subject.rubric).replace(".", "").split()
    listed = ", ".join(word for word in words if len(word) > 4)
    assert max(rubric_coverage(subject, listed, RULE)) == 0.0
    assert min(rubric_coverage(subject, f"{STIPEND} {FEEDBACK}", RULE)) == 1.0


def test_forms_and_order_of_words_do_not_matter_but_other_words_do():
    subject = environment("randomised stipends, estimated effects on entrants, measured prices")
    plan = "The entrant's price is a measurement, and an estimate is made by a random stipend of the effect."
    assert rubric_coverage(subject, plan, RULE) == [1.0]
    assert rubric_coverage(subject, plan.replace("stipend", "silo"), RULE)[0] < 0.85


def test_passages_slide_by_a_sentence():
    plan = "The silo is up. The rod is in it. The clog is there. The arch is on it."
    silo, rod, clog, arch = ({word} for word in ("silo", "rod", "clog", "arch"))
    runs = [silo, rod, clog, arch, silo | rod, rod | clog, clog | arch, silo | rod | clog, rod | clog | arch]
    assert passages(plan, RULE) == list(map(frozenset, runs))
    assert passages("", RULE) == []


def test_a_sentence_that_is_no_prose_adds_nothing():
    assert passages("The silo is up. Rod, clog, arch. The of silo and of is rod.", RULE) == [frozenset({"silo"}), frozenset()]


def test_judge_turns_coverage_into_verdicts_and_reward():
    subject = environment(
        Criterion("stipend tender auction rank", weight=3.0),
        Criterion("silo clog vibration arch", weight=1.0),
        Criterion("Public buyers, few bids"),
    )
    plan = "We pay a stipend to the loser of a tender, and so they may enter again."
    rule = {"threshold": 0.5, "topic_words": 0}
    half = open_judge({"kind": "lexical", "rule": rule, "alpha": 1.0}).score([(subject, plan)])[0]
    assert half.specialised == (True, False, None)
    assert half.reward == combine(half.specialised, half.general, 1.0, [3.0, 1.0, 1.0]) == 0.75
    strict = open_judge({"kind": "lexical", "rule": rule | {"threshold": 0.51}, "alpha": 1.0}).score([(subject, plan)])[0]
    assert strict.specialised == (False, False, None)


def test_the_empty_plan_is_scored_and_so_is_a_missing_answer():
    judge = open_judge("lexical")
    empty, missing = judge.score([(environment(STIPEND, FEEDBACK), ""), (environment(STIPEND, FEEDBACK), None)])
    assert empty == missing
    assert empty.specialised == (False, False) and empty.reward == 0.0


def test_a_verdict_depends_on_its_own_plan_only():
    judge, subject, other = (
        open_judge("lexical"),
        environment(STIPEND, FEEDBACK),
        environment("silo clog vibration arch", question="Why clogs?"),
    )
    items = [(subject, STIPEND), (other, FEEDBACK), (subject, FEEDBACK)]
    assert judge.score(items) == [judge.score([item])[0] for item in items]
    assert judge.score(items[::-1]) == judge.score(items)[::-1]


def test_hundreds_of_plans_a_second():
    subject = environment(*(f"{STIPEND} {FEEDBACK} {word}" for word in ("silo", "clog", "rod", "grain", "shaft", "pulse")))
    plan = " ".join(
        f"We then look at case {number} of the stipend with rank and price in mind, since it may differ." for number in range(30)
    )
    judge = open_judge("lexical")
    started = time.process_time()
    judge.score([(subject, f"{plan} {number}.") for number in range(100)])
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("text", ["x" * 100_000, "a b " * 50_000, "the silo. " * 20_000, "\n" * 100_000, "\\frac{" * 20_000])
def test_hostile_plans_take_bounded_time(text):
    started = time.process_time()
    open_judge("lexical").score([(environment(STIPEND, FEEDBACK), text)])
    assert time.process_time() - started < 3


def test_general_criteria_of_a_user_without_any_rule_are_refused(tmp_path):
    path = tmp_path / "general.toml"
    path.write_text('[[criterion]]\nname = "Short"\ntext = "The plan is short."\n')
    with pytest.raises(InputError, match=r"general.toml: no general criterion has a check"):
        open_judge({"kind": "lexical", "general": str(path)})
    assert open_judge({"kind": "lexical", "general": str(path), "alpha": 1.0}).score([(environment(STIPEND), STIPEND)])[0].general == (
        None,
    )
