"""Published rubric data sets, record by record. A weight is the points that the data set gives, negative ones included.

What a data set says of a criterion beyond its text and points (types, tags, titles, citations) is kept in provenance["criteria"], an
object for each criterion; other columns are left out.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from papergym.data_pipeline.domains import OTHER
from papergym.data_pipeline.imports.fields import Fields
from papergym.environment import Criterion, Environment
from papergym.errors import InputError


def research_plan_gen(record: Fields, fallback_id: str) -> Environment:
    """facebook/research-plan-gen, parquet: Goal, Rubric (strings), Reference solution, article_id, q_id, Subdomain, Category."""
    article, question = record.label("article_id"), record.label("q_id")
    return Environment(
        id="/".join(part for part in (article, question) if part) if question else fallback_id,
        domain=record.label("Category") or record.label("Subdomain") or OTHER,
        question=record.text("Goal"),
        rubric=tuple(map(Criterion, record.texts("Rubric"))),
        reference=record.text("Reference solution"),
        provenance=_provenance("research-plan-gen", paper=article, subdomain=record.label("Subdomain")),
    )


def researchqa(record: Fields, fallback_id: str) -> Environment:
    """ResearchQA, a JSON array: id, general_domain, subdomain, field, query, date, rubric of {rubric_item, type, citation_metadata}."""
    criteria = record.objects("rubric")
    return Environment(
        id=record.label("id") or fallback_id,
        domain=record.label("general_domain") or OTHER,
        question=record.text("query"),
        rubric=tuple(Criterion(item.text("rubric_item")) for item in criteria),
        provenance=_provenance(
            "researchqa",
            date=record.label("date"),
            subdomain=record.label("subdomain"),
            field=record.label("field"),
            criteria=[item.rest("rubric_item") for item in criteria],
        ),
    )


def rubrichub(record: Fields, fallback_id: str) -> Environment:
    """RubricHub_v1, parquet: prompt of {role, content}, Rubrics of {criterion, points}."""
    return _chat(record, fallback_id, "rubrichub", "Rubrics", OTHER)


def healthbench(record: Fields, fallback_id: str) -> Environment:
    """HealthBench, JSON lines: prompt of {role, content}, rubrics of {criterion, points, tags}."""
    return _chat(record, record.label("prompt_id") or fallback_id, "healthbench", "rubrics", "health")


def rar_science(record: Fields, fallback_id: str) -> Environment:
    """RaR-Science: question, reference_answer, rubric of {title, description, weight}."""
    criteria = record.objects("rubric")
    return Environment(
        id=fallback_id,
        domain=OTHER,
        question=record.text("question"),
        rubric=tuple(Criterion(item.text("description"), weight=item.number("weight")) for item in criteria),
        reference=record.text("reference_answer"),
        provenance=_provenance("rar-science", criteria=[item.rest("description", "weight") for item in criteria]),
    )


def papergym(record: Fields, fallback_id: str) -> Environment:
    """Environments: lines of papergym's own files, or rows of `papergym export`, in which provenance is a JSON object as text."""
    values = record.rest()
    if isinstance(text := values.get("provenance"), str):
        try:
            values["provenance"] = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InputError(f"provenance: not valid JSON ({error})") from error
    return Environment.from_record(values)


def _chat(record: Fields, identity: str, dataset: str, rubric: str, domain: str) -> Environment:
    messages = [{"role": message.text("role"), "content": message.text("content")} for message in record.objects("prompt")]
    criteria = record.objects(rubric)
    return Environment(
        id=identity,
        domain=domain,
        question=_transcript(messages),
        rubric=tuple(Criterion(item.text("criterion"), weight=item.number("points")) for item in criteria),
        provenance=_provenance(dataset, criteria=[item.rest("criterion", "points") for item in criteria]),
        messages=tuple(messages),
    )


def _transcript(messages: Sequence[dict[str, str]]) -> str:
    """The whole prompt as one text: a single message is the question, of several each is headed by its role."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role'].capitalize()}: {message['content']}" for message in messages)


def _provenance(dataset: str, criteria: Sequence[dict[str, Any]] = (), **values: str | None) -> dict[str, Any]:
    known: dict[str, Any] = {"dataset": dataset} | {key: value for key, value in values.items() if value is not None}
    return known | {"criteria": list(criteria)} if any(criteria) else known
