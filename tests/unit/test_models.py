"""Models: loading and its errors, end ids, the cut before the output layer, export."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest
import torch

from tests.tiny import char_tokenizer, tiny_model
from trimtab import models
from trimtab.errors import DataError, SettingError
from trimtab.models import (
    as_loaded,
    choose_device,
    choose_dtype,
    export_model,
    load_model,
    resolve_path,
    split_head,
)

ARCHITECTURES = {
    "qwen3": {},
    "llama": {"tie_word_embeddings": False},
    "gpt2": {},
    "granite": {"logits_scaling": 3.0},
    "cohere": {"logit_scale": 0.25},
    "gemma2": {"final_logit_softcapping": 3.0, "sliding_window": 4},
    "gemma3": {"final_logit_softcapping": 3.0},
    "lfm2": {},
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_backbone_and_head_are_the_whole_model(arch):
    model = tiny_model(arch, **ARCHITECTURES[arch])
    backbone, head = split_head(model.module)
    ids = torch.arange(24).view(2, 12) + 2
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    hidden = backbone(ids, mask, positions)
    whole = model.module(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    assert hidden.shape == (2, 12, 32)
    torch.testing.assert_close(head(hidden), whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(head(hidden[0, 5:]), whole[0, 5:], rtol=1e-5, atol=1e-5)


def test_an_unknown_change_of_logits_is_refused(monkeypatch):
    model = tiny_model()
    whole = model.module.forward

    def doubled(*args, **kwargs):
        out = whole(*args, **kwargs)
        out.logits = out.logits * 2
        return out

    monkeypatch.setattr(model.module, "forward", doubled)
    with pytest.raises(DataError, match="changes its logits"):
        split_head(model.module)


def test_the_cut_leaves_the_training_mode_alone():
    module = tiny_model("gpt2", resid_pdrop=0.5).module.train()
    split_head(module)
    assert module.training


@pytest.mark.parametrize("arch", ["qwen3", "gpt2"])
def test_exported_models_load_again(arch, tmp_path):
    model = tiny_model(arch, bos=True, extra_rows=3)
    export_model(model.module, model.tokenizer, tmp_path)
    again = load_model(str(tmp_path), device="cpu")
    assert (again.stop_ids, again.vocab_size, again.context) == ((1,), 54, 256)
    assert not again.module.training
    ids = torch.arange(2, 12)[None]
    mask = torch.ones_like(ids)
    want = model.module(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(again.module(input_ids=ids, attention_mask=mask).logits, want)
    assert again.tokenizer("1+1=")["input_ids"] == model.tokenizer("1+1=")["input_ids"]
    half = load_model(str(tmp_path), device="cpu", dtype="bfloat16")
    assert half.dtype is torch.bfloat16
    assert half.device.type == "cpu"


def test_gguf_models_are_exported_without_their_mark(tmp_path):
    """What transformers does to a model read from GGUF: plain weights, and a config it cannot write."""
    model = tiny_model()
    model.module.config.quantization_config = {"quant_method": "gguf"}
    export_model(model.module, model.tokenizer, tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again = load_model(str(tmp_path), device="cpu")
    for name, parameter in model.module.named_parameters():
        torch.testing.assert_close(again.module.get_parameter(name), parameter)
    assert model.module.config.quantization_config == {"quant_method": "gguf"}


def test_end_ids_are_united_and_unknown_ones_left_out():
    model = tiny_model()
    model.module.generation_config.eos_token_id = [5, 9]
    model.module.config.eos_token_id = 50256
    assert as_loaded(model.module, model.tokenizer).stop_ids == (1, 5, 9)
    model.module.config.eos_token_id = [1, 7]
    model.module.generation_config.eos_token_id = None
    assert as_loaded(model.module, model.tokenizer).stop_ids == (1, 7)
    assert all(isinstance(i, int) for i in model.stop_ids)


def test_a_tokenizer_of_another_model_is_refused():
    model = tiny_model()
    with pytest.raises(DataError, match="54 ids but the model embeds only 53"):
        as_loaded(model.module, char_tokenizer(bos=True))


def test_context_comes_from_the_config():
    assert tiny_model(max_position_embeddings=99).context == 99
    assert tiny_model("gpt2", n_positions=77).context == 77


@pytest.mark.parametrize("content", [None, "{}", '{"model_type": "bert"}', "not json"])
def test_what_cannot_be_loaded_is_one_sentence(content, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match="cannot be loaded as a causal language model") as caught:
        load_model(str(tmp_path), device="cpu")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_devices_and_dtypes():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_dtype("auto", torch.device("cpu")) is torch.float32
    assert choose_dtype("bfloat16", torch.device("cpu")) is torch.bfloat16
    with pytest.raises(SettingError, match="did you mean 'float32'"):
        choose_dtype("flaot32", torch.device("cpu"))
    with pytest.raises(SettingError, match="unknown device 'gpu'"):
        choose_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA, so asking for it is no error")
def test_cuda_where_there_is_none():
    with pytest.raises(SettingError, match="no CUDA device"):
        choose_device("cuda")


def test_embedded_models_lie_in_the_package(tmp_path, monkeypatch):
    (tmp_path / "recipes" / "embedded" / "sums").mkdir(parents=True)
    monkeypatch.setattr(models.resources, "files", lambda package: tmp_path)
    assert resolve_path("embedded/sums") == str(tmp_path / "recipes" / "embedded" / "sums")
    assert resolve_path("org/name") == "org/name"
    with pytest.raises(DataError, match="did you mean 'sums'"):
        resolve_path("embedded/summs")
