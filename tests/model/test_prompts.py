import pytest

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.model.prompts import student_messages, teacher_messages

RUBRIC = (Criterion("A pilot sizes the sample."), Criterion("Costs are drawn once {and kept}."))
ENVIRONMENT = Environment(id="e", domain="econ", question="Why so few {bids}?", rubric=RUBRIC, reference="Run sessions.")


def test_student_sees_the_question_only():
    [message] = student_messages(ENVIRONMENT)
    assert message["role"] == "user" and message["content"].startswith("Why so few {bids}?")
    assert not any(text in message["content"] for text in ("pilot", "drawn", "sessions"))


@pytest.mark.parametrize("context, rubric, reference", [("rubric", 1, 0), ("reference", 0, 1), ("rubric+reference", 1, 1)])
def test_teacher_sees_the_students_prompt_and_its_context(context, rubric, reference):
    [student], [teacher] = student_messages(ENVIRONMENT), teacher_messages(ENVIRONMENT, context)
    assert teacher["content"].startswith(student["content"])
    assert [teacher["content"].count(criterion.text) for criterion in RUBRIC] == [rubric, rubric]
    assert teacher["content"].count("Run sessions.") == reference


def test_messages_of_the_environment_stand_in_for_the_question():
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Plan it."})
    environment = Environment(id="e", domain="econ", question="Q?", rubric=RUBRIC, messages=messages)
    assert student_messages(environment) == list(messages)
    system, user = teacher_messages(environment)
    assert system == messages[0] and user["content"].startswith("Plan it.\n\n") and "A pilot sizes the sample." in user["content"]
    assert environment.messages == messages


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="teacher context 'both'"):
        teacher_messages(ENVIRONMENT, "both")
    without = Environment(id="no-reference", domain="econ", question="Q?", rubric=RUBRIC)
    with pytest.raises(InputError, match="'no-reference', reference"):
        teacher_messages(without, "rubric+reference")
