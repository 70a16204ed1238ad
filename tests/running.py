"""Run the Python of pages, or commands, read from stdin as a JSON list, in one process.

The Python of each page has a folder of its own; all commands share one.
"""

import json
import shlex
import sys
from contextlib import chdir
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    for text in json.load(sys.stdin):
        if sys.argv[1] == "python":
            with TemporaryDirectory() as folder, chdir(folder):
                exec(compile(text, "<page>", "exec"), {})
        else:
            from heedmap.cli import app

            code = app(shlex.split(text)[1:], standalone_mode=False)
            if code:
                sys.exit(f"{text}: exit code {code}")
