"""Every vector of every marker family: what is found does not depend on the chunking."""

from __future__ import annotations

import pytest

from tests.engine.grammar.family_runs import SIZES, VECTORS, Vector, grammar_of, run, vectors
from tests.support.looped import looped

CASES = [
    pytest.param(path.stem, vector, id=f"{path.stem}-{name}")
    for path in sorted(VECTORS.glob("*.json"))
    for name, vector in vectors(path.stem).items()
]


@pytest.mark.parametrize(("family", "vector"), CASES)
@looped("size", SIZES)
def test_vector_at_every_chunk_size(family: str, vector: Vector, size: int) -> None:
    assert run(grammar_of(family, vector), vector.text, size) == vector.found
