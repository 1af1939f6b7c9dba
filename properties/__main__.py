"""`python -m purestep.properties package.module:object` is `purestep verify package.module:object`."""

import sys

from .framework.cli import verify_command

if __name__ == "__main__":
    sys.exit(verify_command(sys.argv[1:]))
