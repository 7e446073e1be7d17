"""`python -m cenote`."""

from cenote.cli import main

if __name__ == "__main__":
    main()
