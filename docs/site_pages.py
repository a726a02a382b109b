"""What `make site` adds to the pages: the examples, how to contribute, and the changes.

These lie outside of docs/, where a reader of the repository looks for them.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
MOVED = {
    "llms.txt": "llms.txt",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "report.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "examples/README.md": "examples/index.md",
    "examples/reference-site/README.md": "examples/reference-site/index.md",
}
SHOWN = {".py": "python", ".toml": "toml"}
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def example_pages() -> dict[str, str]:
    """A page for each file of examples/, by its path in the site."""
    files = [path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in SHOWN]
    pages = {}
    for path in files:
        name = path.relative_to(ROOT)
        code = f"```{SHOWN[path.suffix]}\n{path.read_text()}```"
        pages[f"{name}.md"] = f"# {path.name}\n\n`{name}`\n\n{code}\n"
    return pages


def moved_links(text: str, source: str, page: str) -> str:
    """A page's text with links to files outside of docs/ led to their pages in the site."""
    here = (ROOT / source).parent
    up = "../" * page.count("/")

    def lead(found: re.Match[str]) -> str:
        target = (here / found[1]).resolve()
        if not target.is_relative_to(ROOT):
            return found[0]
        name = target.relative_to(ROOT).as_posix()
        if name.startswith("docs/"):
            place = name.removeprefix("docs/")
        elif name in MOVED:
            place = MOVED[name]
        elif target.suffix in SHOWN and name.startswith("examples/"):
            place = f"{name}.md"
        elif name == "examples":
            place = "examples/index.md"
        else:
            return found[0]
        return f"]({up}{place}{found[2] or ''})"

    return _LINK.sub(lead, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: the pages that are made of files outside of docs/."""
    made = {
        page: moved_links((ROOT / source).read_text(), source, page)
        for source, page in MOVED.items()
    }
    made["llms.txt"] = re.sub(r"\.md(?=[#)])", ".html", made["llms.txt"])  # copied as it is
    for page, text in {**made, **example_pages()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: object, **_: object) -> str:
    """Called by mkdocs for each page: its links, and a blank line around generated tables."""
    source = page.file.src_uri  # type: ignore[attr-defined]
    text = re.sub(r"^(<!-- [^>]* -->)\n(?=\|)", r"\1\n\n", markdown, flags=re.MULTILINE)
    if (ROOT / "docs" / source).exists():
        text = moved_links(text, f"docs/{source}", source)
    return text
