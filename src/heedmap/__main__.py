"""`python -m heedmap`: the command line, for who has no script of it on the path."""

from heedmap.cli import main

if __name__ == "__main__":
    main()
