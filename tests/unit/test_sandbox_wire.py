"""The line between a program and its tests: what crosses it, and what does not."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import collections
import datetime
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.rewards.sandbox.inside.wire import Exchange, WireError, plain_content

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.dates() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
    | st.sets(st.integers()) | st.frozensets(st.text()),
    max_leaves=20,
)  # fmt: skip


def refused(value):
    raise TypeError(f"no stand-in for {value!r}")


def crossed(value):
    return Exchange(refused, refused).read(Exchange(refused, refused).write(value))


@settings(max_examples=200, deadline=None)
@given(plain)
def test_plain_values_cross_with_their_types(value):
    assert typed(crossed(value)) == typed(value)


def typed(value):
    """The value with the type of each part, in an order that does not depend on hashes."""
    if isinstance(value, dict):
        return dict, [(typed(key), typed(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(part) for part in value]
    if isinstance(value, set | frozenset):
        return type(value), {typed(part) for part in value}
    return type(value), repr(value)


@pytest.mark.parametrize(
    "value",
    [
        float("inf"), -0.0, "\ud800", bytearray(b"x"), range(1, 9, 2), slice(1, None), ...,
        collections.deque([1, 2], maxlen=3), collections.Counter("aab"), collections.OrderedDict(b=1, a=2),
        Fraction(1, 3), Decimal("1.20"), datetime.datetime(2024, 2, 29, 1, 2, 3, 4), datetime.timedelta(1, 2),
        {1: [{2}, (3, frozenset({4}))]}, [[]] * 3,
    ],
    ids=repr,
)  # fmt: skip
def test_values_of_the_library_cross_too(value):
    arrived = crossed(value)
    assert (type(arrived), arrived, repr(arrived)) == (type(value), value, repr(value))


def test_numbers_of_any_length_cross():
    assert crossed(-(7**20_000)) == -(7**20_000)


def test_not_a_number_crosses():
    assert crossed([float("nan")])[0] != crossed([float("nan")])[0]


def test_a_named_tuple_keeps_its_fields():
    Point = collections.namedtuple("Point", "x y")
    arrived = crossed(Point(1, 2))
    assert arrived == (1, 2)
    assert (arrived.y, type(arrived).__name__) == (2, "Point")


def test_aliases_and_cycles_stay_what_they_are():
    shared: list = [1]
    one, other = crossed([shared, shared])
    assert one is other
    shared.append(shared)
    arrived = crossed(shared)
    assert arrived[1] is arrived


def test_what_a_call_did_to_its_arguments_comes_back_into_the_same_objects():
    ours = Exchange(refused, refused)
    numbers, names, seen = [3, 1, 2], {"a": 1}, {1, 2}
    request = ours.write([numbers, names, seen])
    theirs = Exchange(refused, refused)
    there_numbers, there_names, there_seen = theirs.read(request)
    there_numbers.sort()
    there_names["b"] = there_numbers
    there_seen.discard(1)
    reply = theirs.write(("ok", there_numbers, theirs.contents(len(theirs.containers))))
    _, returned, contents = ours.read(reply)
    ours.refill(contents)
    assert returned is numbers
    assert (numbers, names, seen) == ([1, 2, 3], {"a": 1, "b": numbers}, {2})
    assert names["b"] is numbers


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from([*b"NTFEIliufsztdabonkrcy;0123456789-"])).map(bytes))
def test_whatever_comes_in_is_a_value_or_a_wire_error(message):
    with suppress(WireError):
        Exchange(refused, lambda letter, number: (letter, number)).read(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"u5;abc",
        b"l99999999999;",
        b"l1;" * 100_000,
        b"k7;",
        b"ot3;u2;osu6;systemt1;u2;ls",
        b"NN",
        b"d1;l0;N",
    ],
)
def test_broken_messages_are_wire_errors(message):
    with pytest.raises(WireError):
        Exchange(refused, refused).read(message)


def test_the_plain_content_of_derived_values_ignores_their_own_methods():
    class Liar(list):
        def __iter__(self):
            return iter([99])

        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = None

    class Number(int):
        __int__ = lambda self: 99  # noqa: E731

    assert plain_content(Liar([1, 2])) == [1, 2]
    assert plain_content(Number(5)) == 5
    assert type(plain_content(Number(5))) is int
    with pytest.raises(TypeError):
        plain_content(object())
