"""Writes the YAML files that the documentation shows into a folder: `snippets.py FOLDER`.

Such a block starts with its file name.
"""

import re
import sys
from pathlib import Path

from runner import ROOT

PAGES = ("docs/github.md", "docs/gitlab.md")


def snippets():
    """The text of each file by its name."""
    text = "\n".join((ROOT / page).read_text() for page in PAGES)
    return dict(re.findall(r"^```yaml\n# (\S+\.yml)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


if __name__ == "__main__":
    for name, text in snippets().items():
        file = Path(sys.argv[1]) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
