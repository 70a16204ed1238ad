"""`python -m heedmap.cli`."""

from heedmap.cli import main

if __name__ == "__main__":
    main()
