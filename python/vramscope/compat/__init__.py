# SPDX-License-Identifier: Apache-2.0
"""The interfaces of older tools. A program that uses them only changes its import."""
