"""Run the command line with ``python -m han``."""

from han.cli.main import main

if __name__ == "__main__":
    main()
