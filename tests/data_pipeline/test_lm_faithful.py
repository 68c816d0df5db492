"""What counts as copied, what is kept of it, and which sentences report an outcome."""

import pytest

from papergym.data_pipeline.lm.faithful import Passage, is_numerical_result

SECTION = r"""Rods jam~\cite{a,b}. However, it is not true that the pump fails. \emph{Our model} uses $\theta_{1}$ and $\nabla f(x)$ with
100 steps \citep[see][p.~3]{foo}. We reach an accuracy of 93.2\% on it. See Fig.~\ref{x} for more. The rate is 0.5 per day.
Unless it rains, the silo drains. If dry, rods stick.

\begin{itemize}\item First we shake the silo. \item We then ``count'' rods---all of them---in K{\"o}ln.\end{itemize}"""


def found(copied):
    sentences, missing = Passage(SECTION).find(copied)
    return [sentence.text for sentence in sentences], missing


@pytest.mark.parametrize(
    ("copied", "kept"),
    [
        ("Rods jam.", ["Rods jam."]),
        ("it is not true that the pump fails.", ["it is not true that the pump fails."]),
        (
            "Our model uses  $\\theta_1$ and\n$\\nabla f(x)$ with 100 steps.",
            [r"\emph{Our model} uses $\theta_{1}$ and $\nabla f(x)$ with 100 steps."],
        ),
        ("We reach an accuracy of 93.2% on it.", [r"We reach an accuracy of 93.2\% on it."]),
        (
            'First we shake the silo. We then "count" rods — all of them — in Köln.',
            ["First we shake the silo.", 'We then "count" rods—all of them—in Köln.'],
        ),
        ("The rate is 0.5 per day", ["The rate is 0.5 per day."]),
        ("Rods jam. However, it is not true that the pump fails.", ["Rods jam.", "However, it is not true that the pump fails."]),
        ("", []),
    ],
)
def test_sentences_come_back_as_the_section_has_them(copied, kept):
    assert found(copied) == (kept, 0)


@pytest.mark.parametrize(
    "copied",
    [
        "The pump fails.",  # the end of a sentence that denies it
        "the silo drains.",  # without its condition
        "Our model uses $\\theta_2$ and $\\nabla f(x)$ with 100 steps.",
        "Our model uses $\\nabla f(x)$ with 100 steps.",
        "We reach an accuracy of 93.3% on it.",
        "We reach an accuracy of 93.2% on it and more.",
        "We reach a accuracy of 93.2% on it.",
        "5 per day.",
        "However, it is true that the pump fails.",
        "Rods jam it is not true that the pump fails.",
    ],
)
def test_what_the_section_does_not_say_is_dropped_and_counted(copied):
    assert found(copied) == ([], 1)


def test_a_false_sentence_among_true_ones_goes_alone():
    assert found("Rods jam. Rods never jam. First we shake the silo.") == (["Rods jam.", "First we shake the silo."], 1)


@pytest.mark.parametrize(
    "sentence",
    [
        r"We reach an accuracy of 93.2\% on it.",
        r"Accuracy rises from 12\% to 18\%.",
        "Ours is 3.2 times faster than the others.",
        "The F1 score was 0.87.",
        r"This improves recall by 4.1 points ($p < 0.01$).",
        "The success rate is 0.61 in the last block.",
        "Our estimator outperforms the others by 12 %.",
        "The multiplier was 1.83 after ten years.",
        "Consumption grew by nearly 2.5 percent.",
        "We find that it depends on n = 5.",
    ],
)
def test_outcomes_with_their_numbers(sentence):
    assert is_numerical_result(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "We train for 200 steps on 8 GPUs with a learning rate of 0.001.",
        r"The test set holds 20\% of the 500 papers.",
        "Each run uses a dropout rate of 0.1.",
        "We compare the accuracy of 3 models.",
        "We sweep the temperature from 10 K to 300 K.",
        "Shaking clears the clogs.",
        "Filters were used with individual exposure times of 180 s on both telescopes.",
        "Ten 10 s images were acquired at the 8.2-meter telescope.",
        "TF1 is very similar to a known strategy.",
    ],
)
def test_settings_are_no_outcomes(sentence):
    assert not is_numerical_result(sentence)


def test_hostile_sections_take_linear_time():
    Passage("a. " * 8_000).find("a b. " * 200)
    Passage(r"\cite{" * 5_000).find("Rods jam.")
    Passage("{" * 10_000 + "$" * 10_000).find("Rods jam.")
