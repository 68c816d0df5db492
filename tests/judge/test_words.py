import pytest

from papergym.judge.words import common_stems, content_words, sentences, stem, stop_words


@pytest.mark.parametrize(
    "forms",
    [
        "plan plans planned planning",
        "estimate estimates estimated estimating estimator estimation",
        "compare compared comparison comparisons",
        "measure measured measurement measurements measuring",
        "randomise randomised randomized randomly randomization random",
        "participant participants participation",
        "analysis analyses analyse analyze analysing",
        "hypothesis hypotheses",
        "strategy strategies strategic",
        "class classes",
        "bias biases biased",
        "label labels labelled labeled",
        "cluster clusters clustered clustering",
        "create created creation",
        "treat treated treatment",
        "bid bids bidding bidder",
        "early earlier",
    ],
)
def test_forms_of_a_word_share_a_stem(forms):
    assert len({stem(word) for word in forms.split()}) == 1


@pytest.mark.parametrize("pair", ["study student", "plan plant", "train trait", "cost coast", "rate ratio", "model mode"])
def test_other_words_do_not(pair):
    assert len({stem(word) for word in pair.split()}) == 2


def test_content_words_leave_out_what_says_nothing():
    assert content_words("We will then use the 3 bidders' x-ray, and not the bids.") == ["bid", "ray", "bid"]
    assert content_words("It is what they did: 42.") == []


def test_sentences_end_at_stops_and_lines():
    text = "Run it. Then (as said.) look!\n\n- Compare A with B\n- Vary p = 0.5 or so\nWhy? E.g. so"
    assert sentences(text) == ["Run it.", "Then (as said.", "look!", "- Compare A with B", "- Vary p = 0.5 or so", "Why?", "E.g.", "so"]


def test_word_lists_are_there_and_apart():
    assert {"the", "with", "use"} <= stop_words()
    assert {"compar", "method", "exper"} <= common_stems()
    assert not common_stems() & {stem(word) for word in ("stipend", "entrants", "vibration", "silo", "compaction")}
