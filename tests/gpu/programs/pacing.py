# SPDX-License-Identifier: Apache-2.0
"""How long the programs of this folder run: `for step in turns():` until --seconds are over.

A context alone takes a tenth of a second to make; a program must outlast it a hundredfold before the share of
samples that fall into such calls says anything.
"""

import argparse
import time

_parser = argparse.ArgumentParser()
_parser.add_argument("--seconds", type=float, default=18.0, help="how long to run")


def arguments(**choices):
    """The program's arguments; `choices` are further options with their defaults."""
    for name, default in choices.items():
        if isinstance(default, bool):
            _parser.add_argument("--" + name, action="store_true")
        else:
            _parser.add_argument("--" + name, type=type(default), default=default)
    return _parser.parse_args()


def turns(seconds, pause=0.05):
    """Counts up, with a pause between two numbers, until the time is over."""
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        yield step
        step += 1
        time.sleep(pause)
