"""Tables of which nothing is cut off: in a narrow terminal one becomes several, below each other."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_FRAME = 3
"""What a column takes besides its cells: a space on either side and a line."""


def print_whole(table: Table) -> None:
    """Print a table on stdout with every cell whole.

    A terminal too narrow for it gets several tables, each with the first column; elsewhere (a pipe, a file) lines are as long
    as they need to be. Columns that may be folded (``no_wrap`` False) are.
    """
    console = Console()
    if not console.is_terminal:
        needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
        Console(file=console.file, width=max(needed, console.width)).print(table)
        return
    for part in parts_within(table, console.width):
        console.print(part)


def parts_within(table: Table, width: int) -> Iterator[Table]:
    """Yield tables at most ``width`` wide that hold all columns, each with the first one; a wider column is one by itself."""
    needed = [_least_width(table, k) for k in range(len(table.columns))]
    group: list[int] = []
    for k in range(1, len(needed)):
        if group and 1 + needed[0] + sum(needed[i] for i in group) + needed[k] > width:
            yield _part(table, group)
            group = []
        group.append(k)
    yield _part(table, group)


def _least_width(table: Table, k: int) -> int:
    column = table.columns[k]
    texts = [str(column.header), *(str(cell) for cell in column.cells)]
    pieces = texts if column.no_wrap else [word for text in texts for word in text.split() or [""]]
    return _FRAME + max(cell_len(Text.from_markup(piece).plain) for piece in pieces)


def _part(table: Table, chosen: list[int]) -> Table:
    """Return the first column and the ``chosen`` ones as a table, with the title of the whole."""
    part = Table(title=table.title, title_justify=table.title_justify)
    columns = [table.columns[k] for k in dict.fromkeys((0, *chosen))]
    for column in columns:
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, style=column.style)
    cells = [list(column.cells) for column in columns]
    for k, row in enumerate(table.rows):
        part.add_row(*(column[k] for column in cells), style=row.style)
    return part
