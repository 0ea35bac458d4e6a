"""``python -m han``: the command line."""

from han.cli.main import main

if __name__ == "__main__":
    main()
