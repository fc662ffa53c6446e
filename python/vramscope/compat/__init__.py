# SPDX-License-Identifier: Apache-2.0
"""The interfaces of older tools, for programs that use them: a changed import is all that they need."""
