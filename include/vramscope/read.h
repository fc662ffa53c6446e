/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VRAMSCOPE_READ_H_
#define VRAMSCOPE_READ_H_

/*
 * Reads recordings: libvramscope_read.so, a C interface to the tables of docs/TABLES.md and to the
 * questions that `vramscope report` and the others ask of them. The Python package reads with it.
 *
 *   #include <vramscope/read.h>
 *
 *   vramscope_recording* recording = vramscope_read_open("train.vram", NULL);
 *   vramscope_query query = {sizeof query};
 *   query.at = "peak";
 *   ...
 *   const vramscope_answer* answer = vramscope_read_report(recording, &query);
 *   const vramscope_table* rows = vramscope_find_table(answer, "rows");
 *   ...
 *   vramscope_read_free(answer);
 *   vramscope_read_close(recording);
 *
 * Every question is answered by tables with named columns: what later versions know more is one
 * more table or column, and no new function. docs/READER.md lists what there is today.
 *
 * Units     bytes, and nanoseconds of CLOCK_MONOTONIC of the machine that recorded; a column says
 *           which. A device is named by NVML's index, -1 for CPU tensors, -2 for pinned memory of
 *           the host.
 * Errors    a function that gives a pointer gives NULL, and vramscope_read_error() says in one line
 *           what is wrong, where, and what to do. Recordings are anybody's bytes: a damaged, cut
 *           off or forged one is an error or an answer, never a crash, in time and memory bounded
 *           by its size. Nothing is printed, and no exception leaves the library.
 * Threads   a recording can be asked by any number of threads at once; its close is the last call.
 *           A cursor belongs to one thread at a time. Answers are constant. A question may use
 *           threads of its own, which have ended when it returns. After fork() a child may go on
 *           reading.
 * Lifetime  an answer is the caller's until vramscope_read_free(), and so is everything that it
 *           points to. It outlives its recording.
 * Versions  structs that the caller fills begin with their size as the caller knows it: fields
 *           behind it are taken as 0. Structs of answers grow at their ends and are reached by
 *           pointer, never by stride: their `size` says what they have. Functions, fields, and
 *           the tables and columns of docs/READER.md are not taken away within a
 *           VRAMSCOPE_READ_VERSION; ask vramscope_read_version() for the library's.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VRAMSCOPE_READ_VERSION 1u

/* Of the library that is loaded: VRAMSCOPE_READ_VERSION as it was compiled. */
uint32_t vramscope_read_version(void);

/* Why the last call of this thread failed, in one line without a newline; "" where it did not.
 * Until the thread's next call. Never NULL. */
const char* vramscope_read_error(void);

/* ---- answers ---- */

/* UTF-8, whatever the recording had: bytes that are none are U+FFFD. There is a 0 behind it. */
typedef struct vramscope_text {
  const char* data;
  size_t bytes;
} vramscope_text;

enum {
  VRAMSCOPE_INT64 = 1,  /* values: const int64_t* */
  VRAMSCOPE_UINT64 = 2, /* values: const uint64_t* */
  VRAMSCOPE_TEXT = 3    /* values: const uint32_t*, indices into `texts` */
};

typedef struct vramscope_column {
  size_t size; /* of this struct */
  const char* name;
  const char* unit; /* "bytes", "ns", "" or the table whose row numbers these are */
  uint32_t type;
  uint32_t text_count;
  const void* values;  /* one a row */
  const uint8_t* null; /* one a row, 1: it has no value; NULL: all have one */
  const vramscope_text* texts;
} vramscope_column;

typedef struct vramscope_table {
  size_t size; /* of this struct */
  const char* name;
  size_t row_count;
  size_t column_count;
  const vramscope_column* const* columns;
} vramscope_table;

typedef struct vramscope_answer {
  size_t size; /* of this struct */
  size_t table_count;
  const vramscope_table* const* tables;
} vramscope_answer;

/* Frees an answer; NULL is none. */
void vramscope_read_free(const vramscope_answer* answer);

/* ---- recordings ---- */

typedef struct vramscope_recording vramscope_recording;

typedef struct vramscope_open_options {
  size_t size;
  /* Of a live directory: how long to wait for the program that reads it; 0: as long as it takes. */
  uint32_t limit_ms;
  /* Of a live directory: 1: native functions are not looked up, which is faster. */
  uint32_t no_native_names;
  /* Of a live directory: the program `vramscope`; NULL: ../bin/vramscope beside this library. */
  const char* program;
} vramscope_open_options;

/* Opens NAME.vram; or NAME.vram.d, the live directory of a recording that nobody has finished, as
 * it is now; where only that is there, NAME.vram stands for it. Options may be NULL.
 *
 * A live directory is read by the program `vramscope`, in a process of its own: what a recording
 * does to it, it does not do to this process. The caller's SIGCHLD may come. */
vramscope_recording* vramscope_read_open(const char* path, const vramscope_open_options* options);

/* NULL is none. */
void vramscope_read_close(vramscope_recording* recording);

/* ---- questions ---- */

/* A table of docs/TABLES.md by its name, row for row; row 0 of a dictionary is "none".
 * `allocations` has a cursor instead. Also `session`, of one row, and `tables`: the names of the
 * others, and of their columns; and `words`: what the numbers of `category`, `part` and `phase`
 * mean. */
const vramscope_answer* vramscope_read_table(const vramscope_recording* recording,
                                             const char* name);

typedef struct vramscope_query {
  size_t size;
  /* As `report --at` takes it: peak, allocated-peak, own-peak, end, SECONDS, @NS, iter:N,
     mark:NAME; NULL: peak. */
  const char* at;
  /* Dimensions, outermost first; none: the ledger's levels. */
  const char* const* by;
  size_t by_count;
  /* Only rows of these: "category=activation". */
  const char* const* where;
  size_t where_count;
  /* Python packages whose code counts as the user's. */
  const char* const* own;
  size_t own_count;
  /* The largest rows of a device, and the rest in one more; 0: all. */
  uint64_t top;
} vramscope_query;

/* Who has the memory at an instant: `devices` (with NVML's figure and the residual), `processes`,
 * `rows` and the others of docs/READER.md. A NULL query is one of zeros. */
const vramscope_answer* vramscope_read_report(const vramscope_recording* recording,
                                              const vramscope_query* query);

/* `iterations`, and `parameters` of the last whole one. An error where there are no iterations. */
const vramscope_answer* vramscope_read_iterations(const vramscope_recording* recording);

/* `phases` and `budgets` of inference engines. An error where no phase is known. */
const vramscope_answer* vramscope_read_phases(const vramscope_recording* recording);

/* `timeline`: the highest instant of each of so many stretches of time (1 to 1,000,000), by device
 * and band; and `nvml`, NVML's figures beside them. */
const vramscope_answer* vramscope_read_timeline(const vramscope_recording* recording,
                                                size_t buckets);

/* ---- allocations, of which there may be a hundred million ---- */

typedef struct vramscope_cursor vramscope_cursor;

typedef struct vramscope_window {
  size_t size;
  /* Rows that live at some instant from `from_ns` to `to_ns`, both included. */
  int64_t from_ns;
  int64_t to_ns;
  /* Dimensions that rows have a text column of. */
  const char* const* by;
  size_t by_count;
  const char* const* own;
  size_t own_count;
} vramscope_window;

/* A NULL window is all of time. The recording stays open until the cursor ends. */
vramscope_cursor* vramscope_read_allocations(const vramscope_recording* recording,
                                             const vramscope_window* window);

/* The next rows, some ten thousand of them in the order of the file: an answer with the table
 * `allocations`. NULL at the end, where vramscope_read_error() is "", and on an error. */
const vramscope_answer* vramscope_read_next(vramscope_cursor* cursor);

/* NULL is none. */
void vramscope_read_end(vramscope_cursor* cursor);

/* ---- Arrow: https://arrow.apache.org/docs/format/CStreamInterface.html ---- */

struct ArrowArrayStream;

/* A table of an answer as a stream of one batch; NULL where there is an error. Numbers and the
 * codes of texts are not copied: the stream and what it gives hold the answer, which stays the
 * caller's to free. Texts are dictionaries of UTF-8 with int32 codes; a column's unit is the
 * metadata "unit" of its field. */
struct ArrowArrayStream* vramscope_read_answer_stream(const vramscope_answer* answer,
                                                      const char* table,
                                                      struct ArrowArrayStream* stream);

/* A table of docs/TABLES.md, also `allocations`, which is read as the stream is: some ten thousand
 * rows a batch. The recording may be closed before the stream is released. A stream belongs to one
 * thread at a time. */
struct ArrowArrayStream* vramscope_read_table_stream(const vramscope_recording* recording,
                                                     const char* name,
                                                     struct ArrowArrayStream* stream);

/* The PyCapsule_Destructor of a Python capsule "arrow_array_stream" whose stream was allocated with
 * malloc(): releases the stream where nobody took it over, and frees it. */
void vramscope_read_end_capsule(void* capsule);

/* ---- rows of many recordings, with the columns of docs/DATASET.md ---- */

/* Collects rows until they are taken. A thread uses one at a time. */
typedef struct vramscope_dataset vramscope_dataset;

/* A batch of allocations has about `group_rows` rows at most. `beside` is NULL, or another one of
 * the same export: a stack that one of them has is no row of the other. */
vramscope_dataset* vramscope_read_dataset(size_t group_rows, const vramscope_dataset* beside);

/* Adds a row to the table `recordings`: the columns `recording` (`number`), `run` and `rank` (the
 * lowest of its processes; -1: none). Reads few bytes of a finished recording. 1, or -1 on an
 * error. */
int vramscope_read_dataset_head(vramscope_dataset* dataset, const char* path, int64_t number);

/* Adds the rows of the recording's summary to the tables `ranks`, `iterations`, `parts`, `growing`,
 * `failures` and `settings`. `number` is their column `recording`. Doubles are int64 columns of
 * their bits. 1, or -1 on an error. */
int vramscope_read_dataset_summary(vramscope_dataset* dataset,
                                   const vramscope_recording* recording,
                                   int64_t number);

/* Adds the recording's rows to the tables `allocations`, `deltas`, `samples` and `stacks`. 1: all
 * of them; 0: `allocations` is full: take it, and call this again; -1 on an error, after which the
 * recording has no row. */
int vramscope_read_dataset_detail(vramscope_dataset* dataset, const vramscope_recording* recording);

/* The number of rows that a table has now. */
size_t vramscope_read_dataset_rows(vramscope_dataset* dataset, const char* table);

/* Moves the rows of a table into a stream of one batch; NULL where there is an error. */
struct ArrowArrayStream* vramscope_read_dataset_take(vramscope_dataset* dataset,
                                                     const char* table,
                                                     struct ArrowArrayStream* stream);

/* NULL is none. */
void vramscope_read_dataset_end(vramscope_dataset* dataset);

/* ---- small helpers ---- */

static inline int vramscope_names_are_equal(const char* a, const char* b) {
  while (*a != 0 && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

/* The table of that name, or NULL. */
static inline const vramscope_table* vramscope_find_table(const vramscope_answer* answer,
                                                          const char* name) {
  size_t i;
  for (i = 0; answer != NULL && i < answer->table_count; ++i) {
    if (vramscope_names_are_equal(answer->tables[i]->name, name)) {
      return answer->tables[i];
    }
  }
  return NULL;
}

/* The column of that name, or NULL. */
static inline const vramscope_column* vramscope_find_column(const vramscope_table* table,
                                                            const char* name) {
  size_t i;
  for (i = 0; table != NULL && i < table->column_count; ++i) {
    if (vramscope_names_are_equal(table->columns[i]->name, name)) {
      return table->columns[i];
    }
  }
  return NULL;
}

/* A number of a row: of an int64 or uint64 column; a text's index. 0 where it has no value. */
static inline uint64_t vramscope_number(const vramscope_column* column, size_t row) {
  if (column->null != NULL && column->null[row] != 0) {
    return 0;
  }
  if (column->type == VRAMSCOPE_TEXT) {
    return ((const uint32_t*)column->values)[row];
  }
  return ((const uint64_t*)column->values)[row];
}

/* A text of a row of a text column; NULL where it has no value. */
static inline const char* vramscope_text_of(const vramscope_column* column, size_t row) {
  if (column->type != VRAMSCOPE_TEXT || (column->null != NULL && column->null[row] != 0)) {
    return NULL;
  }
  return column->texts[((const uint32_t*)column->values)[row]].data;
}

#ifdef __cplusplus
}
#endif

#endif /* VRAMSCOPE_READ_H_ */
