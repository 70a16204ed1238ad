"""Run the Python of pages, or commands, read from stdin as a JSON list, in one process."""

import json
import shlex
import sys

if __name__ == "__main__":
    for text in json.load(sys.stdin):
        if sys.argv[1] == "python":
            exec(compile(text, "<page>", "exec"), {})
        else:
            from heedmap.cli import app

            code = app(shlex.split(text)[1:], standalone_mode=False)
            if code:
                sys.exit(f"{text}: exit code {code}")
