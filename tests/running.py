"""Run the Python or the commands of a page, read from stdin as a JSON list, in one process."""

import json
import shlex
import sys

if __name__ == "__main__":
    names: dict[str, object] = {}
    for text in json.load(sys.stdin):
        if sys.argv[1] == "python":
            exec(compile(text, "<page>", "exec"), names)
        else:
            from heedmap.cli import app

            code = app(shlex.split(text)[1:], standalone_mode=False)
            if code:
                sys.exit(f"{text}: exit code {code}")
