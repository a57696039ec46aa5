"""``python -m bench``: the commands of ``hpo bench``."""

from bench.cli import app

app(prog_name="hpo bench")
