# SPDX-License-Identifier: Apache-2.0
"""Datasets of many ranks, and questions about them: ``vramscope fleet`` and ``vramscope export --to parquet``.

docs/DATASET.md describes the folders and the columns. Needs pyarrow, and duckdb or pyspark for questions.
"""
