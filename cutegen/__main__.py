"""`python -m cutegen`: the command line."""

from cutegen.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
