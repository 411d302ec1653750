#include "common/data/dataset.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/data/data_files.h"
#include "common/data/data_format.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

constexpr size_t kMaxReportedRows = 5;
constexpr size_t kMaxNamedColumns = 20;

// Returns the row as a JSON object: whole, or the texts that were asked for.
std::string RowJson(const TextRow& row) {
  const auto whole = row.find(kWholeRow);
  return whole == row.end() ? nlohmann::json(row).dump() : whole->second;
}

absl::StatusOr<Problem> ToProblem(const absl::StatusOr<TextRow>& row,
                                  const DatasetOptions& options,
                                  const std::string& where,
                                  int64_t number) {
  RETURN_IF_ERROR(row.status());
  const auto text = [&](const std::string& column) {
    const auto found = row->find(column);
    return found == row->end() ? std::string() : found->second;
  };
  Problem problem;
  problem.where = where;
  problem.problem = text(options.problem_column);
  problem.solution = text(options.solution_column);
  problem.answer = text(options.answer_column);
  problem.id = text(options.id_column);
  if (problem.id.empty()) problem.id = absl::StrCat(number);
  for (const auto& [column, value, is_needed] :
       {std::tuple(&options.problem_column, &problem.problem, true),
        std::tuple(&options.solution_column,
                   &problem.solution,
                   options.needs_solution),
        std::tuple(
            &options.answer_column, &problem.answer, options.needs_answer)}) {
    if (is_needed && value->find_first_not_of(" \t\r\n") == std::string::npos) {
      return DataError(
          absl::StrCat(where, ": column '", *column, "' is empty"));
    }
  }
  // JSON is always UTF-8. Parquet promises UTF-8, but does not check it.
  for (const auto& [column, value] :
       {std::pair(options.id_column, &problem.id),
        std::pair(options.problem_column, &problem.problem),
        std::pair(options.solution_column, &problem.solution),
        std::pair(options.answer_column, &problem.answer)}) {
    if (!IsUtf8(*value)) {
      return DataError(
          absl::StrCat(where, ": column '", column, "' is not UTF-8"));
    }
  }
  if (options.keeps_rows) problem.row_json = RowJson(*row);
  return problem;
}

absl::Status CheckIsNoPointer(const std::string& path) {
  std::string head(64, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return IsLfsPointer(head) ? DataError(absl::StrCat(path, kIsLfsPointer))
                            : absl::OkStatus();
}

absl::Status VisitRows(const std::string& file,
                       const RowQuery& query,
                       const RowVisitor& visit) {
  RETURN_IF_ERROR(CheckIsNoPointer(file));
  switch (DataFormatOf(file)) {
    case DataFormat::kParquet:
      return VisitParquetRows(file, query, visit);
    case DataFormat::kArrow:
      return VisitArrowRows(file, query, visit);
    default:
      return VisitJsonRows(file, query, visit);
  }
}

// Other programs use these columns in prompts; a prompt here does not contain
// them.
constexpr const char* kPromptColumns[] = {"documents",
                                          "functions",
                                          "image",
                                          "images",
                                          "reasoning_content",
                                          "system",
                                          "system_prompt",
                                          "tool_calls",
                                          "tools"};

// Logs the columns that nothing reads; columns that could have changed the
// prompts are named in a warning.
void ReportUnread(const std::string& path,
                  const DatasetOptions& options,
                  const std::set<std::string>& unread) {
  std::vector<std::string> prompt;
  std::vector<std::string> others;
  for (const std::string& column : unread) {
    const bool is_prompt = std::ranges::count(kPromptColumns, column) > 0;
    (is_prompt ? prompt : others).push_back(Printable(column));
  }
  if (others.size() > kMaxNamedColumns) {
    others.resize(kMaxNamedColumns);
    others.push_back("...");
  }
  if (!prompt.empty()) {
    LogWarning(absl::StrCat(path,
                            ": not read: ",
                            absl::StrJoin(prompt, ", "),
                            "; a prompt is made of the column '",
                            options.problem_column,
                            "' alone"));
  }
  if (!others.empty()) {
    LogInfo(absl::StrCat(path,
                         ": columns that are not needed and not read: ",
                         absl::StrJoin(others, ", ")));
  }
}

}  // namespace

absl::Status RequireDataPath(const DataSection& section) {
  return section.path.empty() ? ConfigError("data.path is missing")
                              : absl::OkStatus();
}

DatasetOptions MakeDatasetOptions(const DataSection& section) {
  return {.problem_column = section.problem_column,
          .solution_column = section.solution_column,
          .answer_column = section.answer_column,
          .on_bad_row = section.on_bad_row};
}

DatasetOptions MakeHeldOutOptions(const DataSection& section) {
  DatasetOptions options = MakeDatasetOptions(section);
  options.split_rule = SplitRule::kNamed;
  return options;
}

std::string DigestOf(const std::vector<Problem>& problems) {
  Sha256 digest;
  for (const Problem& problem : problems) {
    for (const std::string* text :
         {&problem.id, &problem.problem, &problem.solution, &problem.answer}) {
      digest.Update(absl::StrCat(text->size(), ":", *text));
    }
    if (!problem.row_json.empty()) digest.Update(problem.row_json);
  }
  return digest.HexDigest();
}

absl::StatusOr<Dataset> ReadDataset(const std::string& path,
                                    const DatasetOptions& options) {
  Dataset dataset;
  int64_t number = 0;
  Progress progress("rows");
  const RowVisitor visit = [&](const absl::StatusOr<TextRow>& row,
                               const std::string& where) -> absl::Status {
    const auto problem = ToProblem(row, options, where, number++);
    progress.Update(number, path);
    if (!problem.ok()) {
      if (options.on_bad_row == OnBadRow::kFail) {
        return problem.status();
      }
      if (static_cast<size_t>(dataset.skipped_rows++) < kMaxReportedRows) {
        LogWarning(absl::StrCat("row skipped: ",
                                std::string(problem.status().message())));
      }
      return absl::OkStatus();
    }
    dataset.problems.push_back(*problem);
    return absl::OkStatus();
  };
  std::set<std::string> unread;
  RowQuery query = {.columns = {options.id_column,
                                options.problem_column,
                                options.answer_column},
                    .required = {options.problem_column},
                    .column_settings = options.column_settings,
                    .unread = &unread,
                    .keeps_rows = options.keeps_rows};
  if (options.needs_solution) {
    query.columns.push_back(options.solution_column);
    query.required.push_back(options.solution_column);
  }
  if (options.needs_answer) query.required.push_back(options.answer_column);
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   FindDataFiles(path, options.split_rule));
  for (const std::string& file : files) {
    RETURN_IF_ERROR(VisitRows(file, query, visit));
  }
  ReportUnread(path, options, unread);
  if (dataset.problems.empty()) {
    return DataError(absl::StrCat(
        path, " holds no usable row (", dataset.skipped_rows, " skipped)"));
  }
  dataset.digest = DigestOf(dataset.problems);
  return dataset;
}

}  // namespace dapd
