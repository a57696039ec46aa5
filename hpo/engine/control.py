"""``hpo sweep-control``: puts a wish about a candidate before the sweep's driver, and waits for its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from hpo.engine.commands_file import Action, CommandsFile
from hpo.engine.config import InputError
from hpo.engine.run_folder import RunFolder, exclusive_file


def control(path: Path, action: str, trial: str, to: float | None, wait_s: float) -> dict[str, Any]:
    """Return what became of the wish: ``text``, and ``ok``, None where nobody has answered (yet).

    Raises
    ------
    InputError
        No sweep in that folder, no such action or candidate, or a fraction outside (0, 1].
    """
    run = RunFolder(path.absolute())
    if not run.config.is_file():
        raise InputError.at("RUN", "the folder of a sweep, with its config.yaml", str(path))
    wished: dict[str, Action] = {name: name for name in get_args(Action)}
    if action not in wished:
        raise InputError.at("ACTION", f"one of {', '.join(wished)}", action)
    if to is not None and (action != "extend" or not 0 < to <= 1):
        raise InputError.at("--to", "a fraction in (0, 1], with extend", f"{to:g} with {action}")
    candidate = _candidate(run, trial)
    file = CommandsFile(run.path)
    try:
        command = file.ask(wished[action], candidate, to)
    except OSError as error:
        raise InputError.at("RUN", "a folder that can be written", f"{path}: {error.strerror}") from None
    answer = file.wait_for(command, wait_s if _is_driven(run) else 0.0)
    if answer is not None:
        return {"ok": answer.ok, "text": answer.text, "command": command.id}
    told = (
        "the sweep is busy and heeds it later, or hpo sweep --resume does once it has ended"
        if _is_driven(run)
        else "no driver works on this sweep: hpo sweep --resume heeds it"
    )
    return {"ok": None, "text": f"{action} {candidate}: {told}", "command": command.id}


def _candidate(run: RunFolder, trial: str) -> str:
    """Return the name of the candidate meant; candidates have their folders from the sweep's first moment on."""
    names = sorted(folder.name for folder in run.trials.glob("trial-*"))
    named = [name for i, name in enumerate(names) if trial in (name, str(i))]
    if not named:
        known = f"one of {names[0]} to {names[-1]}, or its number" if names else "a sweep that has begun"
        raise InputError.at("TRIAL", known, trial)
    return named[0]


def _is_driven(run: RunFolder) -> bool:
    with exclusive_file(run.path / ".lock") as holder:
        return holder is not None
