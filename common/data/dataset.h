// Reads problems, with reference solutions for training and with answers for
// evaluation, from JSON (plain or gzip), Parquet and Arrow, in one file or many
// (data_files.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/data_folder.h"

namespace dapd {

struct Problem {
  // The `id` column if there is one; otherwise the row's number, counted over
  // all files.
  std::string id;
  std::string problem;
  std::string solution;  // empty if it is not needed
  std::string answer;    // empty if the data has none
  std::string where;     // place in the data: "rows.jsonl:12"
  // The row as a JSON object, for a grader (common/grader/grading_desk.h);
  // empty unless DatasetOptions::keeps_rows.
  std::string row_json;
};

struct DatasetOptions {
  // Names of the columns; the data need not have `id_column`.
  std::string id_column = "id";
  std::string problem_column = "problem";
  std::string solution_column = "solution";
  std::string answer_column = "answer";
  // Whether solutions are read. Each row must have one then.
  bool needs_solution = true;
  // Whether each row must have an answer. An answer that exists is always read.
  bool needs_answer = false;
  // Chooses the split of a data set that has several, if the path names none.
  SplitRule split_rule = SplitRule::kTrain;
  // The settings that name columns, for the error about a missing column.
  std::string column_settings =
      "data.problem_column, data.solution_column and data.answer_column";
  OnBadRow on_bad_row = OnBadRow::kFail;
  // Whether problems get their row_json: of JSON files with all columns, of
  // other files with the columns that are named above, as texts.
  bool keeps_rows = false;
};

struct Dataset {
  std::vector<Problem> problems;
  int64_t skipped_rows = 0;
  std::string digest;  // DigestOf(problems)
};

// Returns the SHA-256 over the rows' columns, in order, and over the whole rows
// if they are kept.
std::string DigestOf(const std::vector<Problem>& problems);

// Reads all files of `path`, one after the other; `path` is a file, a folder, a
// glob or a hub id (FindDataFiles). An error names a bad row, for example a row
// that is not UTF-8, by its file and line or row number; the error about a
// missing column names the existing columns.
absl::StatusOr<Dataset> ReadDataset(const std::string& path,
                                    const DatasetOptions& options);

// Returns an error with exit code kConfig if data.path is missing. Workers need
// no data.path.
absl::Status RequireDataPath(const DataSection& section);

// Return the options of the configuration's `data` section, for data.path and
// for evaluation.path.
DatasetOptions MakeDatasetOptions(const DataSection& section);
DatasetOptions MakeHeldOutOptions(const DataSection& section);

}  // namespace dapd
