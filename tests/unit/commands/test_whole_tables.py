"""Tables of which nothing is cut off."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from hpo.commands.whole_tables import parts_within, print_whole


def table(n_columns=8):
    made = Table()
    for k in range(n_columns):
        made.add_column(f"column {k}", no_wrap=True)
    for row in range(2):
        made.add_row(*(f"cell {row}.{k}" for k in range(n_columns)))
    return made


def drawn(parts, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [30, 80, 200])
def test_every_cell_is_whole_in_a_terminal_of_any_width(width):
    text = drawn(parts_within(table(), width), width)
    assert "…" not in text
    assert all(f"cell {row}.{k}" in text for row in range(2) for k in range(8))
    assert max(len(line) for line in text.splitlines()) <= width


def test_every_part_begins_with_the_first_column_and_a_wide_terminal_has_one():
    parts = list(parts_within(table(), 30))
    assert len(parts) > 1
    assert all(list(part.columns[0].cells) == ["cell 0.0", "cell 1.0"] for part in parts)
    assert len(list(parts_within(table(), 200))) == 1


def test_one_column_is_a_table(capsys):
    print_whole(table(1))
    assert "cell 1.0" in capsys.readouterr().out


def test_in_a_pipe_lines_are_as_long_as_they_need_to_be(capsys):
    print_whole(table(40))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "cell 0.39" in lines[3]
