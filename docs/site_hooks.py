"""What the site's build adds to the pages: the benchmark page from its results, the changelog, equations, roles of docstrings.

MkDocs calls these functions by their names (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.page import benchmark_page, pictures  # noqa: E402 - the checkout is on the path only now

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>~?(.*?)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let a fence ```math hold LaTeX; it becomes MathML, which browsers draw without a script."""
    fence = {"name": "math", "class": "math", "format": _mathml}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that are made from other files."""
    made: dict[str, str] = {"benchmarks.md": benchmark_page(), "changes.md": (ROOT / "CHANGELOG.md").read_text("utf-8")}
    made |= {f"benchmarks/{name}": text for name, text in pictures().items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show a block marked for the tests (```sh slow, ```python keras) as one of its language; name files outside the site."""
    unmarked = re.sub(r"^```(\w+) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    return re.sub(r"(?<!!)\[[^\]]*\]\(\.\./([^)]+)\)", r"`\1`", unmarked)


def on_page_content(html: str, **_: Any) -> str:
    """Show the roles of docstrings (``:class:`Curve```) as code, without the role's name and the path before a ``~``."""
    return _ROLE.sub(lambda found: f"<code>{escape(found[1].rpartition('.')[2], quote=False)}</code>", html)


def _mathml(source: str, *_: Any, **__: Any) -> str:
    rows = [row for row in source.strip().split("\n\n") if row.strip()]
    return "".join(f"<p>{latex2mathml.converter.convert(row, display='block')}</p>" for row in rows)
