"""The corpus of labelled pairs: its size, its split, its proved labels, and our error rates on all of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.mathematics.__main__ import corpus
from benchmarks.mathematics.generator import generated
from benchmarks.mathematics.graders import last_box, ours
from benchmarks.mathematics.proof import same, same_value
from benchmarks.mathematics.report import Rate, as_table, measure
from benchmarks.mathematics.rows import Row, handmade


@pytest.fixture(scope="module")
def rows():
    return corpus()


def test_it_is_large_half_unequal_and_split_for_good(rows):
    assert len(rows) > 2000
    assert len({(row.kind, row.gold, row.response) for row in rows}) == len(rows)
    scored = [row for row in rows if row.part == "scored"]
    assert len(scored) > 1200
    for part in (rows, scored):
        assert 0.45 < sum(row.equivalent for row in part) / len(part) < 0.55
    kinds = Counter((row.kind, row.equivalent) for row in scored)
    assert min(kinds.values()) >= 15
    assert len(kinds) == 32
    assert Row(kind="a", gold="b", response="c", equivalent=True, origin="d").part == "scored"


def test_the_same_seed_draws_the_same_rows():
    assert list(generated(5, 6)) == list(generated(5, 6))
    assert list(generated(5, 6)) != list(generated(6, 6))


def test_every_generated_label_is_proved(rows):
    drawn = [row for row in rows if row.meanings is not None]
    assert len(drawn) == len(rows) - len(handmade()) > 1200
    for row in drawn:
        assert row.meanings is not None
        assert same(*row.meanings) is row.equivalent, row


def test_the_proof_sees_small_differences():
    assert same_value("sqrt(8)", "2*sqrt(2)")
    assert same_value("sin(2*x)", "2*sin(x)*cos(x)")
    assert not same_value("1/3", "3333/10000")
    assert not same_value("x", "sqrt(x**2)")
    assert same({"set": ["1", "2"]}, {"set": ["2", "1", "1"]})
    assert not same({"tuple": ["1", "2"]}, {"tuple": ["2", "1"]})
    assert same({"equation": "2*x - 2*y"}, {"equation": "x - y"})
    assert not same({"reals": [("0", "1", True, True)]}, {"reals": [("0", "1", True, False)]})


def test_our_error_rates_stay_below_the_promise(rows):
    rates = measure(rows, ours())["all"]
    assert rates.false_positives.wrong / rates.false_positives.rows <= 0.005
    assert rates.false_negatives.wrong / rates.false_negatives.rows <= 0.03


def test_the_table_counts():
    one = Row(kind="a", gold="5", response=r"\boxed{5}", equivalent=True, origin="handmade")
    other = Row(kind="a", gold="5", response=r"\boxed{6}", equivalent=False, origin="handmade")
    measured = measure([one, other, other], last_box)
    assert measured["a"].false_positives == Rate(0, 2)
    assert measured["all"].false_negatives == Rate(0, 1)
    everything = measure([one, other], lambda gold, response: True)
    assert everything["all"].false_positives == Rate(1, 1)
    assert str(Rate(0, 100)) == "0/100 (0.0 to 3.7%)"
    assert (
        as_table({"x": measured}).splitlines()[-1] == "| **all** | 0/2 (0.0 to 65.8%) | 0/1 (0.0 to 79.3%) |"
    )
