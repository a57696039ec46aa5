"""Commands and answers: appended whole, read whole, whatever dies in between."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from hpo.engine.commands_file import Answer, CommandsFile


def test_commands_are_read_in_their_order_by_another_process_too(tmp_path: Path):
    asked = [CommandsFile(tmp_path).ask("keep", "trial-01"), CommandsFile(tmp_path).ask("extend", "trial-02", 0.4)]
    assert CommandsFile(tmp_path).commands() == asked


def test_a_line_cut_short_counts_for_nothing_and_spoils_nothing_after_it(tmp_path: Path):
    file = CommandsFile(tmp_path)
    first = file.ask("stop", "trial-01")
    with file.commands_path.open("a") as raw:
        raw.write('{"id": "half')
    assert file.commands() == [first]
    second = file.ask("revive", "trial-01")
    assert file.commands() == [first, second]


def test_a_command_is_seen_only_when_its_line_is_whole(tmp_path: Path):
    file = CommandsFile(tmp_path)
    whole = file.ask("stop", "trial-01")
    text = file.commands_path.read_text()
    file.commands_path.write_text(text[:-1])
    assert CommandsFile(tmp_path).commands() == []
    file.commands_path.write_text(text)
    assert CommandsFile(tmp_path).commands() == [whole]


def test_many_writers_at_once_lose_nothing(tmp_path: Path):
    def ask() -> None:
        for _ in range(20):
            CommandsFile(tmp_path).ask("keep", "trial-03")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({command.id for command in CommandsFile(tmp_path).commands()}) == 80


def test_lines_that_are_no_commands_are_passed_over(tmp_path: Path):
    file = CommandsFile(tmp_path)
    file.commands_path.write_text('{"a": 1}\n[1]\nnonsense\n')
    assert file.commands() == []


def test_an_answer_is_waited_for_no_longer_than_said(tmp_path: Path):
    file = CommandsFile(tmp_path)
    command = file.ask("keep", "trial-01")
    assert file.wait_for(command, 0.2) is None
    file.answer(Answer(command.id, True, "done"))
    assert CommandsFile(tmp_path).wait_for(command, 0.0) == Answer(command.id, True, "done")


@pytest.mark.parametrize("wrong", [{"until": "half"}, {"until": 2}, {"trial": 3}, {"action": ["keep"]}])
def test_lines_of_other_types_are_passed_over(tmp_path, wrong):
    file = CommandsFile(tmp_path)
    sound = file.ask("extend", "trial-00", 0.5)
    with file.commands_path.open("a") as commands:
        commands.write(json.dumps({**asdict(sound), **wrong}) + "\n")
    assert file.commands() == [sound]
