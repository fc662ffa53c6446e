# SPDX-License-Identifier: Apache-2.0
"""`python -m vramscope` is the console script."""

import sys

from ._cli import main

sys.exit(main())
