"""The web app: generate, edit and inspect in the browser, on the machine that runs it.

One implementation: the jobs call what the command line calls, and give the same bytes. Nothing
heavy is imported until an application is made.
"""

__all__ = ["application", "options"]
