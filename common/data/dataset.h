// Reads problems, with reference solutions for training, with answers for
// evaluation, and with everything else that prompts show of a row, from JSON
// (plain or gzip), Parquet and Arrow, in one file or many (data_files.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/data_folder.h"
#include "common/data/row_material.h"

namespace dapd {

struct Problem {
  // The `id` column if there is one; otherwise the row's number, counted over
  // all files.
  std::string id;
  std::string problem;
  std::string solution;  // empty if it is not needed
  std::string answer;    // empty if the data has none
  std::string where;     // place in the data: "rows.jsonl:12"
  // The teacher that the row names (data.teacher_column); empty: the student's
  // own base, or no such column is read.
  std::string teacher = "";
  // Null unless the prompts show more of the row than its problem.
  std::shared_ptr<const RowMaterial> material = nullptr;
  // The row as a JSON object, with its columns in the order of their names, for
  // a grader (common/grader/grading_desk.h); empty unless
  // DatasetOptions::needs_row_json.
  std::string row_json = "";

  PromptSource source() const { return {problem, material.get()}; }
};

// Returns the error `status` with the row that it is about; exit code kData.
absl::Status RowError(const Problem& problem, const absl::Status& status);

struct DatasetOptions {
  // Names of the columns; the data need not have `id_column`.
  std::string id_column = "id";
  std::string problem_column = "problem";
  std::string solution_column = "solution";
  std::string answer_column = "answer";
  // The column of Problem::teacher, and the names that it may have beside
  // "base" and nothing; empty: no such column is read.
  std::string teacher_column = "";
  std::vector<std::string> teachers = {};
  bool needs_teacher_column = true;  // whether each row must have it
  // The column of a conversation (chat_messages.h), which then gives problem
  // and solution, and the column of its tools. Empty: there is none.
  std::string messages_column = "";
  std::string tools_column = "";
  // The columns that prompts show, by the field that stands for the column
  // (Prompts::Columns). Each row must have them.
  std::map<std::string, std::string> prompt_columns = {};
  // Whether Problem::row_json is filled.
  bool needs_row_json = false;
  // Whether solutions are read. Each row must have one then.
  bool needs_solution = true;
  // Whether each row must have an answer. An answer that exists is always read.
  bool needs_answer = false;
  // Chooses the split of a data set that has several, if the path names none.
  SplitRule split_rule = SplitRule::kTrain;
  // The settings that name columns, for the error about a missing column.
  std::string column_settings =
      "data.problem_column, data.solution_column and data.answer_column";
  // The setting that names the column of conversations, for the same error:
  // "data.messages_column: ".
  std::string messages_setting = "data.messages_column: ";
  OnBadRow on_bad_row = OnBadRow::kFail;
};

struct Dataset {
  std::vector<Problem> problems;
  int64_t skipped_rows = 0;
  std::string digest;  // DigestOf(problems)
};

// Returns the SHA-256 over the rows' columns, in order, over the teachers of
// rows that name one, over whole rows that are kept, and over the material of
// rows that have some.
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

// Return the options of the configuration, for data.path and for
// evaluation.path. The teachers of rows are read if a term asks for them;
// held-out rows may lack that column. Held-out rows need only the columns that
// their question shows, unless evaluation.kl_problems asks for their views.
DatasetOptions MakeDatasetOptions(const Config& config);
DatasetOptions MakeHeldOutOptions(const Config& config);

// Returns DatasetOptions::prompt_columns for these fields (Prompts::Columns).
std::map<std::string, std::string> ColumnsOfFields(
    const std::set<std::string>& fields, const std::string& context_column);

}  // namespace dapd
