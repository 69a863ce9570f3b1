"""Writes the files that the README shows into a folder: `snippets.py FOLDER`. Such a block begins with its file's name."""

import re
import sys
from pathlib import Path

from runner import ROOT


def snippets():
    """Name and text of each."""
    blocks = re.findall(r"^```yaml\n# (\S+\.yml)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return dict(blocks)


if __name__ == "__main__":
    for name, text in snippets().items():
        file = Path(sys.argv[1]) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
