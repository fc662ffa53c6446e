# SPDX-License-Identifier: Apache-2.0
"""How the tests start, whoever starts them."""
import signal


def pytest_configure() -> None:
    # A shell starts what runs in its background with interrupts ignored, and every child inherits that: the tests
    # that interrupt programs would find nothing interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
