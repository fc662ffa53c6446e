# SPDX-License-Identifier: Apache-2.0
"""The table of a line profile: text in the layout of pytorch_memlab, and HTML with bars for notebooks."""

from __future__ import annotations

import dataclasses
import html
from typing import Any, Dict, List, Optional, Sequence

from ._line_columns import Column
from ._mem_report import readable_size, signed_size

_COLORS = ("#4878d0", "#ee854a", "#6acc64", "#d65f5f", "#956cb4", "#8c613c", "#dc7ec0", "#797979")
_EMPTY = "No data collected"


@dataclasses.dataclass
class Line:
    number: int
    code: str
    values: List[Optional[int]]  # one for each column; None: never executed, or unknown


@dataclasses.dataclass
class FunctionTable:
    """A function on one device."""

    name: str
    device: str
    lines: List[Line]
    peak: Optional[int]
    peak_line: int
    remarks: List[str]


def _text(column: Column, value: Optional[int]) -> str:
    if value is None:
        return ""
    if not column.is_bytes:
        return str(value)
    return signed_size(value) if column.is_signed else readable_size(value)


class RecordsDisplay:
    """The result of a line profile. `str()` is its text; a notebook shows a table."""

    def __init__(self, tables: Sequence[FunctionTable], columns: Sequence[Column], show_device: bool) -> None:
        self.tables = list(tables)
        self.columns = list(columns)
        self._show_device = show_device

    def __repr__(self) -> str:
        return self.text()

    def __str__(self) -> str:
        return self.text()

    def _title(self, table: FunctionTable) -> str:
        return f"{table.name} on {table.device}" if self._show_device else table.name

    def text(self) -> str:
        if not self.tables:
            return f"{_EMPTY}\n"
        return "\n\n".join(f"## {self._title(table)}\n\n{self._rows(table)}\n" for table in self.tables)

    def _rows(self, table: FunctionTable) -> str:
        heads = [[column.heads[level] for column in self.columns] for level in range(3)]
        cells = [
            [_text(column, value) for column, value in zip(self.columns, line.values)] for line in table.lines
        ]
        widths = [max(map(len, column)) for column in zip(*heads, *cells)]
        number = max(4, *(len(str(line.number)) for line in table.lines))

        def row(values: Sequence[str], line: str, code: str) -> str:
            left = "".join(f"{value:>{width}} " for value, width in zip(values, widths))
            return f"{left}{line:>{number}}  {code}".rstrip()

        out = [row(heads[0], "line", "code")]
        out += [row(level, "", "") for level in heads[1:] if any(level)]
        out += [row(values, str(line.number), line.code) for values, line in zip(cells, table.lines)]
        return "\n".join(out + self._notes(table))

    def _notes(self, table: FunctionTable) -> List[str]:
        notes = list(table.remarks)
        if table.peak is not None and table.peak > 0:
            notes.insert(0, f"Peak {readable_size(table.peak)} in line {table.peak_line}")
        if any(column.is_sampled for column in self.columns):
            notes.append("~ sampled after the first executions of each line, not counted")
        return notes

    def _repr_html_(self) -> str:
        if not self.tables:
            return f"<p>{_EMPTY}</p>"
        most = [
            max((line.values[i] or 0 for table in self.tables for line in table.lines), default=0)
            for i in range(len(self.columns))
        ]
        return "\n".join(self._html_table(table, most) for table in self.tables)

    def _html_table(self, table: FunctionTable, most: Sequence[int]) -> str:
        mono = "font-family:monospace"
        out = [f'<h3><span style="{mono}">{html.escape(self._title(table))}</span></h3><div><table>']
        for level in range(3):
            names = "".join(f"<th>{html.escape(column.heads[level])}</th>" for column in self.columns)
            rest = '<th>line</th><th style="text-align:left">code</th>' if level == 0 else "<th></th><th></th>"
            out.append(f"<tr>{names}{rest}</tr>")
        for line in table.lines:
            cells = []
            for index, (column, value) in enumerate(zip(self.columns, line.values)):
                style = "text-align:right"
                if value is not None and value > 0 and most[index] > 0:
                    color, share = _COLORS[index % len(_COLORS)], 99 * value / most[index]
                    style += f";background:linear-gradient(90deg,{color} {share:.1f}%,transparent {share:.1f}%)"
                cells.append(f'<td style="{style}">{_text(column, value)}</td>')
            bold = ";font-weight:bold" if table.peak is not None and line.number == table.peak_line else ""
            code = html.escape(line.code)
            out.append(
                f"<tr>{''.join(cells)}<td>{line.number}</td>"
                f'<td style="text-align:left;white-space:pre;{mono}{bold}">{code}</td></tr>'
            )
        out.append("</table></div>")
        out += [f"<p>{html.escape(note)}</p>" for note in self._notes(table)]
        return "".join(out)

    def to_dict(self) -> Dict[str, Any]:
        """Exact numbers, in bytes or executions; None for a line that never ran."""
        return {
            "schema": "vramscope.lines/1",
            "functions": [
                {
                    "function": table.name,
                    "device": table.device,
                    "peak": table.peak,
                    "peak_line": table.peak_line if table.peak is not None else None,
                    "lines": [
                        {
                            "line": line.number,
                            "code": line.code,
                            **{column.name: value for column, value in zip(self.columns, line.values)},
                        }
                        for line in table.lines
                    ],
                }
                for table in self.tables
            ],
        }

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each line. Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise RuntimeError(
                "vramscope: to_pandas() needs pandas, which is not installed; to_dict() does not"
            ) from None
        rows = [
            {"function": function["function"], "device": function["device"], **line}
            for function in self.to_dict()["functions"]
            for line in function["lines"]
        ]
        return pandas.DataFrame(rows)
