"""The command line: words become commands, mistakes one line, interruptions a way to go on."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trimtab
from trimtab import __version__
from trimtab.cli import COMMANDS, TAKES_SETTINGS, main
from trimtab.errors import RunError

RECIPE = """
[model]
path = "some/model"
[data]
task = "sums"
[algorithm]
name = "dapo"
[sampling]
max_new_tokens = 100
"""


class FakeLaunch:
    """Remembers its calls; ``train`` leaves a run.json as a real run does, and may fail."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure
        self.calls: list[SimpleNamespace] = []

    def train(self, run: Any, *, folder: Path, view: Any, resume: bool) -> dict[str, Any]:
        from trimtab.config import run_to_dict

        self.calls.append(SimpleNamespace(run=run, folder=folder, resume=resume, view=view))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps({"run": run_to_dict(run)}))
        if self.failure is not None:
            raise self.failure
        return {}

    def evaluate(self, run: Any, *, folder: Path | None, step: int | None, view: Any) -> dict[str, Any]:
        self.calls.append(SimpleNamespace(run=run, folder=folder, step=step, view=view))
        return {"pass@1": 0.5, "pass@1_interval": [0.4, 0.6], "mean_length": 12.0}

    def export(self, folder: Path, *, step: int | None, to: Path) -> Path:
        self.calls.append(SimpleNamespace(folder=folder, step=step, to=to))
        return to


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLaunch:
    """A fake of launch, in an empty working folder that holds one recipe."""
    fake = FakeLaunch()
    monkeypatch.setitem(sys.modules, "trimtab.launch", fake)
    monkeypatch.setattr(trimtab, "launch", fake, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(RECIPE)
    return fake


def fails(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """The one line on stderr of a command that must fail; nothing may stand on stdout."""
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("trimtab: ")
    return err


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"trimtab {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert "usage: trimtab" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "COMMAND"),
        (["trian"], "invalid choice"),
        (["train", "q", "--lr", "3"], "trainer.epochs=2"),
        (["export", "runs/x"], "--to"),
    ],
)
def test_wrong_words_show_the_usage(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert hint in capsys.readouterr().err


def test_commands_without_settings_refuse_them(capsys: pytest.CaptureFixture[str]):
    assert "algorithms takes no settings, got 'a.b=c'" in fails(capsys, "algorithms", "a.b=c")
    assert set(TAKES_SETTINGS) <= set(COMMANDS)


def test_train_gives_the_resolved_run_to_launch(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "mine.toml", "run.steps=3", "--sampling.temperature", "0.7", "--plain"]) == 0
    call = launch.calls[0]
    assert (call.run.run.steps, call.run.sampling.temperature, call.run.run.name) == (3, 0.7, "mine")
    assert (call.folder, call.resume) == (Path("runs/mine"), False)
    assert capsys.readouterr().out.endswith("everything is recorded in runs/mine\n")


def test_a_second_run_takes_the_next_folder_and_a_bare_resume_the_newest(launch: FakeLaunch):
    for _ in range(3):
        assert main(["train", "mine.toml"]) == 0
    assert main(["train", "mine.toml", "--resume"]) == 0
    assert [str(call.folder) for call in launch.calls] == [
        "runs/mine",
        "runs/mine-2",
        "runs/mine-3",
        "runs/mine-3",
    ]
    assert [call.resume for call in launch.calls] == [False, False, False, True]


def test_a_bare_resume_starts_a_run_that_is_not_there_yet(launch: FakeLaunch):
    assert main(["train", "mine.toml", "--resume", "--out", "here"]) == 0
    assert main(["train", "mine.toml", "--resume", "--out", "here"]) == 0
    assert [(str(call.folder), call.resume) for call in launch.calls] == [("here", False), ("here", True)]


def test_out_never_touches_a_run(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "mine.toml", "--out", "here"]) == 0
    capsys.readouterr()
    assert "here holds a run already" in fails(capsys, "train", "mine.toml", "--out", "here")


def test_resume_goes_on_with_the_stored_run(launch: FakeLaunch):
    main(["train", "mine.toml", "sampling.temperature=0.7"])
    assert main(["train", "--resume", "runs/mine", "run.steps=900"]) == 0
    stored, again = launch.calls[0].run, launch.calls[1]
    assert again.resume
    assert again.run.sampling == stored.sampling
    assert again.run.run.steps == 900


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train"], "train needs a recipe"),
        (["train", "nothing"], "there is no recipe 'nothing'"),
        (["train", "mine.toml", "trainer.learnig_rate=1"], "trainer.learning_rate"),
        (["train", "--resume", "runs/none"], "runs/none holds no run to resume"),
        (["train", "--resume", "runs/mine", "--out", "x"], "leave one out"),
        (["train", "--resume", "runs/mine", "sampling.temperature=0.5"], "another sampling.temperature"),
        (["train", "mine.toml", "--resume", "run.seed=4"], "another run.seed"),
        (["eval", "some/model"], "--recipe"),
        (["eval", "some/model", "--recipe", "mine.toml", "--step", "3"], "--step"),
        (["eval", "runs/mine", "--recipe", "mine.toml"], "leave --recipe out"),
        (["explain", "gspp"], "'gspo'"),
        (["explain", "polcy/entropy"], "'policy/entropy'"),
        (["check-objectives", "none.json"], "none.json"),
    ],
)
def test_mistakes_are_one_line(
    launch: FakeLaunch, capsys: pytest.CaptureFixture[str], words: list[str], hint: str
):
    main(["train", "mine.toml"])
    capsys.readouterr()
    assert hint in fails(capsys, *words)
    assert len(launch.calls) == 1


def test_a_failed_run_keeps_its_traceback_lines_but_not_its_escapes(
    launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
):
    launch.failure = RunError("no answer could be graded:\n  first \x1b[31mtraceback")
    assert main(["train", "mine.toml"]) == 2
    assert capsys.readouterr().err == "trimtab: no answer could be graded:\n  first \\x1b[31mtraceback\n"


def test_what_another_process_said_stands_below_the_sentence(
    launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
):
    launch.failure = RunError("engine 1 (process 7): vLLM failed (ValueError: no)")
    launch.failure.add_note("Traceback (most recent call last):\n  in \x1b[31mstep\nValueError: no\n")
    assert main(["train", "mine.toml"]) == 2
    assert capsys.readouterr().err == (
        "trimtab: engine 1 (process 7): vLLM failed (ValueError: no)\n"
        "Traceback (most recent call last):\n  in \\x1b[31mstep\nValueError: no\n"
    )


def test_a_defect_of_ours_keeps_its_traceback(launch: FakeLaunch):
    launch.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main(["train", "mine.toml"])


def test_an_interrupted_run_says_how_to_go_on(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    launch.failure = KeyboardInterrupt()
    assert "trimtab train --resume runs/mine" in fails_quietly(capsys, "train", "mine.toml")


def fails_quietly(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 130
    return capsys.readouterr().err


def test_an_interruption_elsewhere_is_one_word(
    launch: FakeLaunch, capsys: pytest.CaptureFixture[str], monkeypatch
):
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "export", interrupted)
    assert fails(capsys, "export", "runs/x", "--to", "y", code=130) == "trimtab: interrupted\n"


def test_a_dry_run_shows_everything_and_starts_nothing(
    launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
):
    (Path("top.toml")).write_text("[sampling]\nmax_new_tokens = 200\n")
    assert main(["train", "mine.toml", "top.toml", "--dry-run", "trainer.updates_per_step=2"]) == 0
    out = capsys.readouterr().out
    for part in (
        "# resolved run",
        'task = "sums"',
        "# different from the defaults",
        "sampling.max_new_tokens = 200   # default 512",
        "# in plain numbers",
        "32 prompts a step",
        "can act",
        "# without effect",
        "sampling.max_new_tokens = 100 of mine.toml has no effect: top.toml replaces it",
    ):
        assert part in out
    assert launch.calls == []
    assert not Path("runs").exists()


def test_a_dry_run_of_a_resume_shows_the_stored_run(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    main(["train", "mine.toml"])
    capsys.readouterr()
    assert main(["train", "--resume", "runs/mine", "--dry-run", "run.steps=7"]) == 0
    assert "steps = 7" in capsys.readouterr().out
    assert len(launch.calls) == 1


def test_eval_of_a_run_and_of_a_model(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    main(["train", "mine.toml"])
    capsys.readouterr()
    assert main(["eval", "runs/mine", "--step", "5", "evaluation.samples=16"]) == 0
    assert "pass@1 0.500 [0.400, 0.600]" in capsys.readouterr().out
    assert main(["eval", "org/model", "--recipe", "mine.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pass@1"] == 0.5
    of_run, of_model = launch.calls[1:]
    assert (of_run.folder, of_run.step, of_run.run.evaluation.samples) == (Path("runs/mine"), 5, 16)
    assert (of_model.folder, of_model.step, of_model.run.model.path) == (None, None, "org/model")


def test_export_names_run_step_and_folder(launch: FakeLaunch, capsys: pytest.CaptureFixture[str]):
    assert main(["export", "runs/x", "--step", "3", "--to", "y"]) == 0
    assert launch.calls[0] == SimpleNamespace(folder=Path("runs/x"), step=3, to=Path("y"))
    assert capsys.readouterr().out == "model written to y\n"


def test_algorithms_and_explain(capsys: pytest.CaptureFixture[str]):
    assert main(["algorithms"]) == 0
    assert "sapo" in capsys.readouterr().out
    assert main(["explain", "gspo"]) == 0
    assert "2507.18071" in capsys.readouterr().out
    assert main(["explain", "policy/entropy"]) == 0
    assert "nats" in capsys.readouterr().out


def test_check_objectives_exits_1_when_a_number_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    golden = Path(__file__).parents[1] / "golden" / "data" / "critic.json"
    assert main(["check-objectives", str(golden)]) == 0
    cases = json.loads(golden.read_text())
    expected = cases["cases"][0]["expected"]
    name = next(name for name, value in expected.items() if isinstance(value, float))
    expected[name] += 1e-6
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(cases))
    capsys.readouterr()
    assert main(["check-objectives", str(wrong)]) == 1
    assert "1.00e-06" in capsys.readouterr().out
