"""What docstrings say of parameters, in the three ways that people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent.schema.docstrings import Described, describe

GOOGLE = """Search the web.

    Finds pages.

    Args:
        query (str): What to look for,
            in any language: words or a sentence.
        limit: How many
          pages.
        *more (int, optional): More.

    Returns:
        A list of pages.

    Raises:
        ValueError: if there is nothing to look for.
    """
NUMPY = """Search the web.

    Finds pages.

    Parameters
    ----------
    query : str
        What to look for,
        in any language: words or a sentence.
    limit, more : int, optional
        How many pages.

    Returns
    -------
    list
        A list of pages.
    """
SPHINX = """Search the web.

    Finds pages.

    :param str query: What to look for,
        in any language: words or a sentence.
    :type query: str
    :param limit: How many pages.
    :param dict[str, int] more: More.
    :returns: A list of pages.
    :rtype: list
    """
QUERY = "What to look for, in any language: words or a sentence."


@pytest.mark.parametrize(
    ("docstring", "rest", "parameters"),
    [
        (
            GOOGLE,
            "Returns:\n    A list of pages.\n\nRaises:\n    ValueError: if there is nothing to look for.",
            {"query": QUERY, "limit": "How many pages.", "more": "More."},
        ),
        (
            NUMPY,
            "Returns\n-------\nlist\n    A list of pages.",
            {"query": QUERY, "limit": "How many pages.", "more": "How many pages."},
        ),
        (SPHINX, ":returns: A list of pages.", {"query": QUERY, "limit": "How many pages.", "more": "More."}),
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_parameters_are_found_and_the_rest_is_the_description(
    docstring: str, rest: str, parameters: dict[str, str]
) -> None:
    assert describe(docstring) == Described(f"Search the web.\n\nFinds pages.\n\n{rest}", parameters)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Only a sentence.",
        "A list:\n- Args: are things",
        "Args: not a section",
        "Parameters\nare not underlined",
        "A tool.\n\nNote:\n    path: this is no parameter",
    ],
)
def test_what_is_no_section_stays_in_the_description(text: str) -> None:
    assert describe(text) == Described(text, {})


def test_no_docstring_says_nothing() -> None:
    assert describe(None) == Described("", {})


@given(st.text(alphabet="ab :\n\t-(*)AArgsPparam.", max_size=80))
def test_any_text_is_read(text: str) -> None:
    found = describe(text)
    assert all(found.parameters.values())
