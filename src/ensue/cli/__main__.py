"""`python -m ensue.cli`."""

import sys

from ensue.cli.main import main

sys.exit(main())
