# SPDX-License-Identifier: Apache-2.0
"""Makes `python -m vramscope` run the console script."""

import sys

from ._cli import main

sys.exit(main())
