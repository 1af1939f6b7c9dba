"""The command line as a module: `python -m purestep`, the same as the `purestep` script."""

import sys

from .runtime.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
