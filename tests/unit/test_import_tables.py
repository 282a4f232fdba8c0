"""Event files and CSV: numbers by step, whoever wrote them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from trimtab import cli
from trimtab.errors import DataError
from trimtab.record.importers import import_run
from trimtab.record.importers.event_file import DamagedError, masked_crc, scalars
from trimtab.record.reader import RunReader

FIXTURES = Path(__file__).parents[1] / "fixtures"
EVENTS = next((FIXTURES / "tensorboard").iterdir())


def trl_log() -> list[dict]:
    return json.loads((FIXTURES / "trl" / "ok" / "trainer_state.json").read_text())["log_history"]


def test_the_checksum_is_crc_32c():
    crc = masked_crc(b"123456789")
    unmasked = (crc - 0xA282EAD8) & 0xFFFFFFFF
    assert ((unmasked << 15) | (unmasked >> 17)) & 0xFFFFFFFF == 0xE3069283, "the check value of CRC-32C"


def test_a_real_event_file_says_what_was_written():
    found = list(scalars(EVENTS))
    rewards = {scalar.step: scalar.value for scalar in found if scalar.tag == "train/reward"}
    for entry in trl_log()[:12]:
        if "reward" in entry:
            assert rewards[entry["step"]] == struct.unpack("f", struct.pack("f", entry["reward"]))[0]
    newer = [scalar for scalar in found if scalar.tag == "train/learning_rate"]
    assert [(s.step, s.time) for s in newer] == [(5, 1767225700.0)]
    assert newer[0].value == pytest.approx(1e-6)


def test_event_files_become_a_run(tmp_path):
    done = import_run(FIXTURES / "tensorboard", tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert (done.steps, done.updates_per_step) == (6, 2)
    assert reader.history.value(0, "length/mean") == trl_log()[0]["completions/mean_length"]
    assert reader.history.times.values[0] == 1767225600 + 20
    assert "imported/train/num_tokens" in reader.history.keys
    assert reader.run["facts"]["imported"]["names_of"] == "trl"


def test_every_cut_of_an_event_file_gives_whole_records_or_damage(tmp_path):
    whole, text = list(scalars(EVENTS)), EVENTS.read_bytes()
    for size in (0, 5, 12, 40, 500, len(text) - 1):
        (tmp_path / "cut").write_bytes(text[:size])
        found = []
        try:
            for scalar in scalars(tmp_path / "cut"):
                found.append(scalar)
        except DamagedError:
            assert size > 0
        else:
            assert size == 0
        assert found == whole[: len(found)]


def test_a_flipped_bit_is_noticed(tmp_path):
    text = bytearray(EVENTS.read_bytes())
    text[len(text) // 2] ^= 4
    (tmp_path / "events.out.tfevents.1").write_bytes(text)
    done = import_run(tmp_path, tmp_path / "run", kind="tensorboard")
    assert "the records before are imported" in done.complaints[0]
    assert done.steps > 0


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_verls_names(tmp_path):
    table = write(
        tmp_path / "log.csv",
        "step,timestamp,critic/score/mean,actor/entropy,note\n1,100,0.5,0.3,x\n2,110,0.625,,\n3,120,nan,0.2,\n",
    )
    import_run(table, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    assert reader.history.metrics(0) == {"reward/mean": 0.5, "policy/entropy": 0.3}
    assert reader.history.metrics(1) == {"reward/mean": 0.625}
    assert reader.history.missing(2) == {"reward/mean": "critic/score/mean was nan"}
    assert list(reader.history.times.values) == [100, 110, 120]


def test_a_download_of_weights_and_biases(tmp_path):
    text = (
        '"Step","brave-run - train/reward","brave-run - train/reward__MIN","brave-run - train/reward__MAX"\n'
    )
    table = write(tmp_path / "wandb.csv", text + '"1","0.25","0.25","0.25"\n"2","0.5","0.5","0.5"\n')
    import_run(table, tmp_path / "run")
    history = RunReader(tmp_path / "run").history
    assert history.keys == ["reward/mean"]
    assert list(history.series("reward/mean").values) == [0.25, 0.5]


def test_own_names_stay_and_steps_from_zero_stay(tmp_path):
    table = write(tmp_path / "own.csv", "step,reward/outcome,mine\n0,0.25,7\n1,0.5,8\n")
    import_run(table, tmp_path / "run")
    history = RunReader(tmp_path / "run").history
    assert history.metrics(0) == {"reward/outcome": 0.25, "imported/mine": 7.0}
    assert history.last_step == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "step,note\n1,x\n"])
def test_a_table_without_steps_or_numbers_is_refused(tmp_path, text):
    table = write(tmp_path / "log.csv", text)
    with pytest.raises(DataError, match="no table with a column of steps"):
        import_run(table, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_says_what_came_of_it(tmp_path, capsys):
    words = ["import", str(FIXTURES / "trl" / "len"), "--to", str(tmp_path / "run"), "--algorithm", "grpo"]
    assert cli.main([*words, "algorithm.clip_high=0.3"]) == 0
    out = capsys.readouterr().out
    assert "15 steps, 2 optimizer steps each" in out
    assert "under imported/: clip_ratio/high_max" in out
    assert "no grades; --scale WRONG RIGHT" in out
    assert "not told by any file (give them as settings): sampling.temperature" in out
    run = RunReader(tmp_path / "run").run["run"]
    assert run["algorithm"] == {"name": "grpo", "clip_high": 0.3}
    assert cli.main(words) == cli.USER_ERROR
    assert "overwrites nothing" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [["--group-size", "0"], ["--scale", "1", "0"]])
def test_impossible_options_are_refused(tmp_path, capsys, extra):
    words = ["import", str(FIXTURES / "trl" / "len"), "--to", str(tmp_path / "run"), *extra]
    assert cli.main(words) == cli.USER_ERROR
    assert not (tmp_path / "run").exists()
