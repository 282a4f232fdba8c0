"""Train a recipe.

trimtab train quickstart                         a recipe of the package, into runs/quickstart
trimtab train quickstart mine.toml               with a file of one's own laid over it
trimtab train quickstart trainer.epochs=2        with single settings changed (--trainer.epochs 2 is the same)
trimtab train quickstart --dry-run               only show what would be trained
trimtab train --resume runs/quickstart           go on where a run stopped
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import say
from trimtab.errors import RunError, SettingError, nearest

if TYPE_CHECKING:
    from trimtab.config import Resolution, Run

RUNS = Path("runs")
INTERRUPTED = 130
NEWEST = ""
MAY_CHANGE = (
    "run.steps",
    "model.device",
    "evaluation.every",
    "record.",
    "doctor.",
    *(f"cluster.{name}" for name in ("engines", "trainers", "address", "transfer", "vllm.max_model_len")),
    *(f"cluster.{name}" for name in ("patience", "give_up", "restarts")),
)
"""What a resumed run may be given anew; anything else would make it another run."""


def add(parser: argparse.ArgumentParser) -> None:
    """RECIPE ..., --resume, --out, --dry-run, --plain."""
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="names or TOML files, later ones count")
    parser.add_argument(
        "--resume",
        nargs="?",
        const=NEWEST,
        metavar="DIR",
        help="go on with the run in DIR; without DIR, with the recipe's newest run, or start it",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="show the resolved run and stop")
    parser.add_argument("--plain", action="store_true", help="one line a step instead of the live view")


def main(args: argparse.Namespace) -> int:
    """Resolve the run, choose its folder, train."""
    if not args.recipes and not args.resume:
        from trimtab.config import recipe_names

        raise SettingError(f"train needs a recipe, or --resume DIR{nearest('', recipe_names())}")
    run, folder, resume = _continued(args) if args.resume else _fresh(args)
    if args.dry_run:
        return 0
    return _train(run, folder, resume=resume, plain=args.plain)


def _fresh(args: argparse.Namespace) -> tuple[Run, Path, bool]:
    """The run of the recipes; with a bare --resume the newest run of that name goes on where there is one."""
    from trimtab.config import resolution

    resolved = resolution(args.recipes, args.settings)
    if args.dry_run:
        _show(resolved)
    root = args.out or RUNS / resolved.run.run.name
    newest = _newest(root, numbered=args.out is None)
    if args.resume is not None and newest is not None:
        _refuse_changes(newest, stored_run(newest), resolved.run)
        return resolved.run, newest, True
    if newest is not None and args.out is not None and not args.dry_run:
        raise RunError(f"{root} holds a run already; add --resume to go on with it, or choose another --out")
    return resolved.run, root if newest is None else _next(root, newest), False


def _continued(args: argparse.Namespace) -> tuple[Run, Path, bool]:
    """The stored run of ``--resume DIR``, with what may change changed."""
    from trimtab.config import Resolution, overridden, resolution

    folder = Path(args.resume)
    if args.out is not None:
        raise SettingError("--out and --resume DIR both name the run's folder; leave one out")
    stored = stored_run(folder)
    run = resolution(args.recipes, args.settings).run if args.recipes else overridden(stored, args.settings)
    _refuse_changes(folder, stored, run)
    if args.dry_run:
        _show(Resolution(run, ()))
    return run, folder, True


def _newest(root: Path, *, numbered: bool) -> Path | None:
    """The run at ``root``, or the last of root, root-2, root-3 ...; None where there is none."""
    if not (root / "run.json").exists():
        return None
    number = 2
    while numbered and (_numbered(root, number) / "run.json").exists():
        number += 1
    return root if number == 2 else _numbered(root, number - 1)


def _next(root: Path, newest: Path) -> Path:
    """The folder after the newest one, so that a second run never touches the first."""
    number = 2 if newest == root else int(newest.name.removeprefix(f"{root.name}-")) + 1
    return _numbered(root, number)


def _numbered(root: Path, number: int) -> Path:
    return root.with_name(f"{root.name}-{number}")


def stored_run(folder: Path) -> Run:
    """The run that a folder was made with."""
    from trimtab.config import run_from_dict
    from trimtab.record.reader import RunReader

    if not (folder / "run.json").exists():
        raise RunError(f"{folder} holds no run to resume (there is no run.json in it)")
    return run_from_dict(RunReader(folder).run["run"])


def _refuse_changes(folder: Path, stored: Run, run: Run) -> None:
    from trimtab.config import run_to_dict
    from trimtab.record.writer import changes

    paths = changes(run_to_dict(stored), run_to_dict(run))
    changed = [path for path in paths if not path.startswith(MAY_CHANGE)]
    if changed:
        raise RunError(
            f"{folder} was started with another {', '.join(changed)}; a resumed run keeps its settings "
            f"except {', '.join(MAY_CHANGE)}*: start a new run instead"
        )


def _show(resolved: Resolution) -> None:
    """What ``--dry-run`` prints: the run, what differs from the defaults, its numbers, what had no effect."""
    from trimtab.config import diff_from_defaults, opening_lines, resolved_lines

    blocks: tuple[tuple[str, Sequence[object]], ...] = (
        ("resolved run", resolved_lines(resolved.run)),
        ("different from the defaults", diff_from_defaults(resolved.run)),
        ("in plain numbers", opening_lines(resolved.run)),
        ("without effect", resolved.shadowed),
    )
    for title, lines in blocks:
        if lines:
            say("\n".join([f"# {title}", *map(str, lines), "", ""]))


def _train(run: Run, folder: Path, *, resume: bool, plain: bool) -> int:
    from trimtab import launch
    from trimtab.cli.view import choose_view

    view = choose_view(plain=plain, out=sys.stdout, dumb=os.environ.get("TERM") == "dumb")
    try:
        launch.train(run, folder=folder, view=view, resume=resume)
    except KeyboardInterrupt:
        view.close()
        if not (folder / "run.json").exists():
            raise
        again = f"trimtab train --resume {shlex.quote(str(folder))}"
        say(f"trimtab: stopped; what was saved stays, go on with: {again}", sys.stderr)
        return INTERRUPTED
    finally:
        view.close()
    say(f"everything is recorded in {folder}")
    return 0
