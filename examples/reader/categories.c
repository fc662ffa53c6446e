/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what each category has at an instant, and how much is missing for NVML's figure:
 *
 *   example_reader FILE [WHEN]
 *
 * cc -std=c99 categories.c -lvramscope_read does for it: C99 and newer, and C++. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "vramscope/read.h"

static void PrintRows(const vramscope_table* rows) {
  const vramscope_column* index = vramscope_find_column(rows, "index");
  const vramscope_column* category = vramscope_find_column(rows, "category");
  const vramscope_column* bytes = vramscope_find_column(rows, "bytes");
  size_t row;
  for (row = 0; row < rows->row_count; ++row) {
    printf("%d,%s,%" PRIu64 "\n", (int)(int64_t)vramscope_number(index, row),
           vramscope_text_of(category, row), vramscope_number(bytes, row));
  }
}

static void PrintResiduals(const vramscope_table* devices) {
  const vramscope_column* index = vramscope_find_column(devices, "index");
  const vramscope_column* residual = vramscope_find_column(devices, "residual_bytes");
  size_t row;
  for (row = 0; row < devices->row_count; ++row) {
    if (residual->null == NULL || residual->null[row] == 0) {
      printf("%d,(residual),%" PRId64 "\n", (int)(int64_t)vramscope_number(index, row),
             (int64_t)vramscope_number(residual, row));
    }
  }
}

int main(int argc, char** argv) {
  static const char* const kBy[] = {"category"};
  vramscope_query query;
  vramscope_recording* recording;
  const vramscope_answer* answer;
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: example_reader FILE [WHEN]\n");
    return 2;
  }
  recording = vramscope_read_open(argv[1], NULL);
  if (recording == NULL) {
    fprintf(stderr, "%s\n", vramscope_read_error());
    return 1;
  }
  memset(&query, 0, sizeof query);
  query.size = sizeof query;
  query.at = argc == 3 ? argv[2] : "peak";
  query.by = kBy;
  query.by_count = 1;
  answer = vramscope_read_report(recording, &query);
  if (answer == NULL) {
    fprintf(stderr, "%s\n", vramscope_read_error());
    vramscope_read_close(recording);
    return 1;
  }
  PrintRows(vramscope_find_table(answer, "rows"));
  PrintResiduals(vramscope_find_table(answer, "devices"));
  vramscope_read_free(answer);
  vramscope_read_close(recording);
  return 0;
}
