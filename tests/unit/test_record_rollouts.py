"""Rollouts to Parquet and back, and carried groups to a checkpoint and back."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenes import batch, prompt, rewarded, scored
from trimtab.data.packing import pack
from trimtab.errors import DataError
from trimtab.probes import flagged_groups
from trimtab.record import RecordConfig
from trimtab.record.groups import load_groups, save_groups
from trimtab.record.reader import RunReader
from trimtab.record.rollouts import GroupEntry, UpdateEntry, write_rollouts
from trimtab.record.rows import read_rollouts
from trimtab.record.schema import SCHEMA, TRAINED_COLUMNS
from trimtab.record.tokens import SOURCES
from trimtab.record.writer import RunRecord
from trimtab.types import Draw, Grade, Group, ScoredGroup, Trace

ALL = RecordConfig(tokens="all")


def entry(
    group: ScoredGroup, shaping=None, *, kept: bool = True, reason: str = "kept", carried: bool = False
):
    part = rewarded(group, shaping) if kept else None
    return GroupEntry(scored=group, kept=kept, reason=reason, carried=carried, rewarded=part)


def update(number: int, groups, *, salt: float = 0.0, columns=("old", "gate")) -> UpdateEntry:
    """An update on these groups with recognisable values: token t of the batch has t + salt in them."""
    made = pack([rewarded(group) for group in groups])
    t = torch.arange(made.num_tokens, dtype=torch.float64) + salt
    made = made.with_columns(advantages_T=t + 0.1, weights_T=t + 0.2)
    if "old" in columns:
        made = made.with_columns(old_logprobs_T=-(t + 0.3).float())
    trace = Trace(
        logprobs_T=-(t + 0.4).float(),
        entropy_T=(t + 0.5).float(),
        ratio_T=(t + 0.6).float(),
        gate_T=(t + 0.7).float() if "gate" in columns else None,
    )
    return UpdateEntry(number, made, trace)


@pytest.fixture
def groups():
    return [
        scored("a", [1, 0, "failed"], [3, 2, 4], cut=[1], draw=2, version=5),
        scored("b", [1, 1], [1, 1]),
        scored("c", [0, 1], [4, 1]),
    ]


def write(path, entries, updates=(), flags=None, config=ALL, step=7):
    write_rollouts(path, step, entries, updates, flags or {}, config)
    return read_rollouts(path)


def test_a_row_says_everything_of_its_rollout(tmp_path, groups):
    a, b, _ = groups
    entries = [entry(a, [0.0, -0.5, 0.0], carried=True), entry(b, kept=False, reason="all-right")]
    rows = write(tmp_path / "x.parquet", entries, [update(31, [a])], {"a#2": "grader failed"})
    assert [row.key for row in rows] == ["a#2/0", "a#2/1", "a#2/2", "b#0/0", "b#0/1"]
    first, second, failed, dropped, _ = rows
    assert (first.step, first.group, first.prompt_id, first.draw, first.index) == (7, "a#2", "a", 2, 0)
    assert (first.prompt, first.answer, first.text, first.task) == ("a: 3+4=", "7", "answer 0", "sums")
    assert (first.kept, first.reason, first.carried, first.flag) == (True, "kept", True, "grader failed")
    assert (first.finish, second.finish, first.length, first.seed) == ("stop", "length", 3, 1000)
    assert first.versions == ((5, 0, 3),)
    assert (first.grade, first.value, first.parts, first.detail) == ("right", 1.0, {"answer": 1.0}, "ok")
    assert (first.reward, first.shaping) == (1.0, 0.0)
    assert (second.reward, second.shaping) == (-1.5, -0.5)
    assert (first.update, first.trained_tokens) == (31, 3)
    assert first.advantage == pytest.approx(1.1)
    assert first.weight == pytest.approx(0 + 1 + 2 + 0.6)
    assert (failed.grade, failed.value, failed.reward, failed.update) == ("grader_failed", None, None, None)
    assert (dropped.kept, dropped.reason, dropped.flag, dropped.carried) == (False, "all-right", None, False)
    assert (dropped.reward, dropped.advantage, dropped.weight, dropped.trained_tokens) == (None,) * 4


def test_token_values_lie_with_their_rollout_whatever_the_updates_and_their_order(tmp_path, groups):
    a, b, c = groups
    updates = [update(1, [c, a], salt=100), update(2, [b], salt=200), update(3, [a], salt=300)]
    rows = write(tmp_path / "x.parquet", [entry(g) for g in groups], updates)
    found = {row.key: row for row in rows}
    first = {"a#2/0": 300, "a#2/1": 303, "b#0/0": 200, "b#0/1": 201, "c#0/0": 100, "c#0/1": 104}
    numbers = {"a": 3, "b": 2, "c": 1}
    for key, start in first.items():
        row = found[key]
        tokens = row.tokens
        assert tokens is not None
        assert row.update == numbers[key[0]]
        values = np.arange(row.length) + start
        np.testing.assert_array_equal(tokens.advantages, values + 0.1)
        np.testing.assert_array_equal(tokens.weights, values + 0.2)
        np.testing.assert_array_equal(tokens.old_logprobs, -(values + 0.3).astype(np.float32))
        np.testing.assert_array_equal(tokens.new_logprobs, -(values + 0.4).astype(np.float32))
        np.testing.assert_array_equal(tokens.gates, (values + 0.7).astype(np.float32))
        assert tokens.trained.all()
        assert (tokens.ref_logprobs, tokens.values, tokens.returns) == (None, None, None)
    for group in groups:
        for rollout in group.group.rollouts:
            tokens = found[rollout.key].tokens
            np.testing.assert_array_equal(tokens.token_ids, rollout.token_ids)
            np.testing.assert_array_equal(tokens.mask, rollout.mask)
            np.testing.assert_array_equal(tokens.sampler_logprobs, rollout.logprobs)
            np.testing.assert_array_equal(tokens.prompt_token_ids, group.group.prompt.token_ids)
    failed = found["a#2/2"].tokens
    assert failed.token_ids is not None
    assert all(getattr(failed, column.name) is None for column in TRAINED_COLUMNS)


def test_every_ratio_can_be_computed_again(tmp_path, groups):
    [row, *_] = write(tmp_path / "x.parquet", [entry(groups[0])], [update(1, [groups[0]])])
    tokens = row.tokens
    np.testing.assert_allclose(np.exp(tokens.new_logprobs - tokens.old_logprobs), math.exp(-0.1), rtol=1e-6)


def test_an_update_that_lacks_a_column_leaves_null_only_in_its_own_rows(tmp_path, groups):
    a, b, _ = groups
    updates = [update(1, [a]), update(2, [b], columns=("old",))]
    rows = write(tmp_path / "x.parquet", [entry(a), entry(b)], updates)
    assert rows[0].tokens.gates is not None
    assert rows[3].tokens.gates is None
    assert rows[3].tokens.old_logprobs is not None


def test_only_the_sample_and_what_is_flagged_keeps_its_tokens(tmp_path):
    groups = [scored(f"p{i}", [1, 0], [2, 3]) for i in range(10)]
    entries = [entry(group, kept=i % 2 == 0, reason="x") for i, group in enumerate(groups)]
    rows = write(tmp_path / "a.parquet", entries, [update(1, groups[::2])], config=RecordConfig(tokens=2))
    with_tokens = {row.group for row in rows if row.tokens is not None}
    assert len(rows) == 20
    assert len(with_tokens) == 2
    assert with_tokens <= {group.group.key for group in groups[::2]}, "the sample is of trained groups"
    flags = {"p1#0": "why"}
    rows = write(tmp_path / "b.parquet", entries, flags=flags, config=RecordConfig(rollouts=0, tokens=0))
    assert [(row.group, row.flag, row.tokens is not None) for row in rows] == [("p1#0", "why", True)] * 2


def test_a_step_without_groups_is_a_file_without_rows(tmp_path):
    assert write(tmp_path / "x.parquet", []) == []
    assert pq.read_schema(tmp_path / "x.parquet").equals(SCHEMA)


def test_empty_answers_and_odd_gold_answers_are_kept(tmp_path):
    group = scored("a", [0, 1], [0, 2])
    odd = dataclasses.replace(prompt("a"), answer={"values": [1, "2"], "set": {3}})
    group = dataclasses.replace(group, group=Group(draw=Draw(odd, 0), rollouts=group.group.rollouts))
    rows = write(tmp_path / "x.parquet", [entry(group)], [update(1, [group])])
    assert rows[0].length == 0
    assert len(rows[0].tokens.token_ids) == len(rows[0].tokens.gates) == 0
    assert (rows[0].trained_tokens, rows[0].advantage) == (0, None)
    assert rows[0].answer == {"values": [1, "2"], "set": "{3}"}


def test_a_remark_that_is_no_utf_8_is_written_with_a_question_mark(tmp_path):
    group = scored("a", [0, 1], [2, 2])
    first = dataclasses.replace(group.grades[0], detail="bad \ud800")
    group = dataclasses.replace(group, grades=(first, *group.grades[1:]))
    rows = write(tmp_path / "x.parquet", [entry(group)], [update(1, [group])])
    assert [row.detail for row in rows] == ["bad ?", group.grades[1].detail]


def test_all_token_columns_have_a_source():
    assert set(SOURCES) == {column.name for column in TRAINED_COLUMNS}


def test_through_the_record_and_the_reader(tmp_path, groups):
    config = RecordConfig(rollouts_every=2, tokens=1)
    with RunRecord.create(tmp_path / "x", run={}, seeds={}, config=config) as record:
        record.rollouts(1, [entry(groups[0])])
        record.rollouts(2, [entry(groups[0])], [update(1, [groups[0]])])
        record.rollouts(3, [entry(groups[1])], flags={"b#0": "why"})
    reader = RunReader(tmp_path / "x")
    assert reader.rollout_steps() == [2, 3]
    assert len(reader.rollouts(2)) == 3
    with pytest.raises(DataError, match="not recorded"):
        reader.rollouts(1)
    (tmp_path / "x/rollouts/000004.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        reader.rollouts(4)


def test_flags():
    groups = [
        scored("a", [1, "failed"], [1, 1]),
        scored("b", [1, "timeout"], [1, 1]),
        scored("c", [1, 0], [1, 1]),
    ]
    made = batch((1, 2), name="c", old_logprobs_T=[-1.0, -1.0, -1.0])
    calm = Trace(logprobs_T=torch.tensor([-1.0, -1.0, -1.0]), clamped_T=torch.zeros(3, dtype=torch.bool))
    assert flagged_groups(groups, [(made, calm)]) == {"a#0": "grader failed", "b#0": "grader timed out"}
    moved = dataclasses.replace(calm, logprobs_T=torch.tensor([-1.0, -0.5, -1.0]))
    assert flagged_groups([], [(made, calm), (made, moved)]) == {"c#0": "largest log-ratio of the step, 0.5"}
    clamped = dataclasses.replace(moved, clamped_T=torch.tensor([False, False, True]))
    assert flagged_groups([], [(made, clamped)]) == {"c#0": "a log-ratio was clamped"}
    broken = dataclasses.replace(moved, logprobs_T=torch.tensor([math.nan, -1.0, -1.0]))
    assert flagged_groups([], [(made, broken)]) == {"c#0": "a log-probability is not finite"}


def same(left, right) -> None:
    """Equal in every field, every type and every bit."""
    assert type(left) is type(right)
    if dataclasses.is_dataclass(left):
        for field in dataclasses.fields(left):
            same(getattr(left, field.name), getattr(right, field.name))
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right), "JSON has one NaN, whatever bits it had"
    elif isinstance(left, float):
        assert np.float64(left).tobytes() == np.float64(right).tobytes()
    else:
        assert left == right


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    answer=json_like,
    meta=st.dictionaries(st.text(max_size=4), json_like, max_size=3),
    logprobs=st.lists(st.floats(width=32), max_size=6),
    value=st.floats(0, 1),
    text=st.text(max_size=10),
)
def test_groups_survive_a_checkpoint_bit_for_bit(tmp_path_factory, answer, meta, logprobs, value, text):
    folder = tmp_path_factory.mktemp("groups")
    one = prompt("p/ü#1")
    asked = dataclasses.replace(one, answer=answer, meta=meta, messages=({"role": "user", "content": text},))
    made = scored("p/ü#1", [value, "timeout"], [len(logprobs), 2], cut=[1], draw=3, version=2)
    first = dataclasses.replace(
        made.group.rollouts[0], logprobs=np.array(logprobs, dtype=np.float32), text=text
    )
    group = Group(draw=Draw(asked, 3), rollouts=(first, *made.group.rollouts[1:]))
    grades = (Grade.of(value, parts={"x": math.nan, "y": value}, detail=text), *made.grades[1:])
    groups = [dataclasses.replace(made, group=group, grades=grades), scored("q", [1], [4])]
    save_groups(folder, groups)
    again = load_groups(folder)
    same(groups, again)


def test_no_groups_and_numpy_scalars_survive_too(tmp_path):
    save_groups(tmp_path / "none", [])
    assert load_groups(tmp_path / "none") == []
    made = scored("p", [1], [2])
    asked = dataclasses.replace(made.group.prompt, answer=np.float32(0.1), meta={"n": np.int64(3)})
    made = dataclasses.replace(made, group=Group(draw=Draw(asked, 0), rollouts=made.group.rollouts))
    save_groups(tmp_path / "one", [made])
    [again] = load_groups(tmp_path / "one")
    same(made, again)


def test_what_a_checkpoint_cannot_keep_is_named(tmp_path):
    made = scored("p", [1], [2])
    asked = dataclasses.replace(made.group.prompt, meta={"when": object()})
    made = dataclasses.replace(made, group=Group(draw=Draw(asked, 0), rollouts=made.group.rollouts))
    with pytest.raises(DataError, match="prompt 'p' holds a object"):
        save_groups(tmp_path, [made])


def test_groups_of_another_format_are_refused(tmp_path):
    save_groups(tmp_path, [])
    (tmp_path / "groups.json").write_text('{"version": 2, "groups": []}')
    with pytest.raises(DataError, match="format 2"):
        load_groups(tmp_path)
