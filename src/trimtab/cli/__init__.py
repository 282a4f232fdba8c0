"""The command line: ``trimtab COMMAND``. Each command is one small module that imports its machines late."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from trimtab import __version__
from trimtab.cli import (
    algorithms,
    audit,
    check_objectives,
    cold_start,
    doctor,
    evaluate,
    explain,
    export,
    grade,
    import_runs,
    plan,
    preflight,
    replay,
    report,
    reward_model,
    train,
    watch,
    whatif,
)
from trimtab.cli.words import joined, say, split_settings
from trimtab.errors import SettingError, TrimtabError

COMMANDS = {
    "train": train,
    "eval": evaluate,
    "preflight": preflight,
    "plan": plan,
    "export": export,
    "algorithms": algorithms,
    "explain": explain,
    "doctor": doctor,
    "watch": watch,
    "report": report,
    "cold-start": cold_start,
    "check-objectives": check_objectives,
    "whatif": whatif,
    "import": import_runs,
    "replay": replay,
    "grade": grade,
    "audit": audit,
    "reward-model": reward_model,
}
"""Every command: a module with ``add(parser)`` and ``main(args) -> exit code``; its docstring is its help."""

TAKES_SETTINGS = ("train", "eval", "preflight", "plan", "cold-start", "reward-model", "whatif", "import")

TAKES_TEXT = {"grade": grade.TEXTS, "audit": audit.TEXTS}
"""Commands whose words are never settings, with the options whose value may begin with a dash."""

USER_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    An error that the user can mend is told on stderr without a traceback, with code 2; what another
    process said when it failed is told below it.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except TrimtabError as problem:
        say(f"trimtab: {problem}", sys.stderr)
        for note in getattr(problem, "__notes__", ()):  # the traceback of another process
            say(note, sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("trimtab: interrupted", file=sys.stderr)
        return train.INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(tokens: list[str]) -> int:
    texts = TAKES_TEXT.get(tokens[0]) if tokens else None
    words, settings = split_settings(tokens) if texts is None else (joined(tokens, texts), [])
    args = make_parser().parse_args(words)
    if settings and args.command not in TAKES_SETTINGS:
        raise SettingError(f"{args.command} takes no settings, got {settings[0]!r}")
    args.settings = settings
    return COMMANDS[args.command].main(args)


class Parser(argparse.ArgumentParser):
    """argparse, with a hint for those who write a setting without its table."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: --"):
            message += (
                " (a setting of the run is written with its table: --trainer.epochs 2 or trainer.epochs=2)"
            )
        super().error(message)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; cheap, since no machine is imported."""
    parser = Parser(
        prog="trimtab",
        description="Reinforcement-learning post-training for reasoning language models.",
        epilog="Start with: trimtab train quickstart",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trimtab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, module in COMMANDS.items():
        doc = (module.__doc__ or "").strip()
        command = commands.add_parser(
            name,
            help=doc.partition("\n")[0],
            description=doc,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add(command)
    return parser
