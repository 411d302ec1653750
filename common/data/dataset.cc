#include "common/data/dataset.h"

#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/data/data_files.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

constexpr size_t kMaxReportedRows = 5;

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
  // JSON always is; Parquet promises it and does not check.
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
  return problem;
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
          .on_bad_row = section.on_bad_row == "skip"
                            ? DatasetOptions::OnBadRow::kSkip
                            : DatasetOptions::OnBadRow::kFail};
}

std::string DigestOf(const std::vector<Problem>& problems) {
  Sha256 digest;
  for (const Problem& problem : problems) {
    for (const std::string* text :
         {&problem.id, &problem.problem, &problem.solution, &problem.answer}) {
      digest.Update(absl::StrCat(text->size(), ":", *text));
    }
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
      if (options.on_bad_row == DatasetOptions::OnBadRow::kFail) {
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
  RowQuery query = {.columns = {options.id_column,
                                options.problem_column,
                                options.solution_column,
                                options.answer_column},
                    .required = {options.problem_column},
                    .column_settings = options.column_settings};
  if (options.needs_solution) query.required.push_back(options.solution_column);
  if (options.needs_answer) query.required.push_back(options.answer_column);
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FindDataFiles(path));
  for (const std::string& file : files) {
    RETURN_IF_ERROR(absl::EndsWith(file, ".parquet")
                        ? VisitParquetRows(file, query, visit)
                        : VisitJsonRows(file, query, visit));
  }
  if (dataset.problems.empty()) {
    return DataError(absl::StrCat(
        path, " holds no usable row (", dataset.skipped_rows, " skipped)"));
  }
  dataset.digest = DigestOf(dataset.problems);
  return dataset;
}

}  // namespace dapd
