// Problems, with reference solutions for training and with answers for
// evaluation, from JSON (plain or gzip), Parquet and Arrow: one file or many
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
  // The `id` column if there is one, else the row's number, counted over all
  // files.
  std::string id;
  std::string problem;
  std::string solution;  // empty if it is not needed
  std::string answer;    // empty if the data has none
  std::string where;     // its place in the data: "rows.jsonl:12"
};

struct DatasetOptions {
  // Which column holds what; `id` may be missing from the data.
  std::string id_column = "id";
  std::string problem_column = "problem";
  std::string solution_column = "solution";
  std::string answer_column = "answer";
  // Whether solutions are read, which then each row must have.
  bool needs_solution = true;
  // Whether each row must have an answer. It is read if it is there.
  bool needs_answer = false;
  // Chooses the split of a data set that has several, if the path names none.
  SplitRule split_rule = SplitRule::kTrain;
  // Where columns are named, for the error about one that is not there.
  std::string column_settings =
      "data.problem_column, data.solution_column and data.answer_column";
  OnBadRow on_bad_row = OnBadRow::kFail;
};

struct Dataset {
  std::vector<Problem> problems;
  int64_t skipped_rows = 0;
  std::string digest;  // DigestOf(problems)
};

// SHA-256 over the rows' columns, in order.
std::string DigestOf(const std::vector<Problem>& problems);

// `path`: whatever FindDataFiles takes; a file, a folder, a glob or a hub id,
// whose files are read one behind the other. A bad row (among them: one
// that is not UTF-8) is named by file and line (or row), a missing column by
// the columns found.
absl::StatusOr<Dataset> ReadDataset(const std::string& path,
                                    const DatasetOptions& options);

// Exit code kConfig without a data.path, which workers need not have.
absl::Status RequireDataPath(const DataSection& section);

// The options that the configuration's `data` section stands for, for data.path
// and for evaluation.path.
DatasetOptions MakeDatasetOptions(const DataSection& section);
DatasetOptions MakeHeldOutOptions(const DataSection& section);

}  // namespace dapd
