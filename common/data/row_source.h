// Reads the rows of a data file as texts by column, whatever its format.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Maps each column to its text in a row. A missing or null value is absent;
// numbers and booleans are written as text (json_text.h, arrow_cell.h).
using TextRow = std::map<std::string, std::string>;

// This function is called with each row and its place ("file:12"). `row` is an
// error if the row could not be read. If the function returns an error, the
// reading ends.
using RowVisitor = std::function<absl::Status(
    const absl::StatusOr<TextRow>& row, const std::string& where)>;

inline constexpr size_t kMaxUnreadColumns = 200;

// The name under which a TextRow has the whole row as a JSON object
// (RowQuery::keeps_rows). No column of a question has it.
inline constexpr char kWholeRow[] = "";

// `columns` are the columns that are asked for. The `required` columns must
// exist in the data: the error about a missing one lists the existing columns
// and says that `column_settings` name the right ones.
struct RowQuery {
  std::vector<std::string> columns;
  std::vector<std::string> required;
  std::string column_settings;
  // Gets the names of columns that are not asked for, at most
  // kMaxUnreadColumns. A JSON column counts only if it holds a value.
  std::set<std::string>* unread = nullptr;
  // Whether rows of JSON come whole, under kWholeRow.
  bool keeps_rows = false;
};

// Reads JSON Lines, or one array of rows, behind an optional byte order mark
// and blanks, plain or compressed by gzip. A text in an array stands for the
// row {"text": ...}, as for `datasets`.
absl::Status VisitJsonRows(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit);

// Reads a stream of Arrow's IPC format, in the form that save_to_disk of
// `datasets` writes, or a file of this format.
absl::Status VisitArrowRows(const std::string& path,
                            const RowQuery& query,
                            const RowVisitor& visit);

absl::Status VisitParquetRows(const std::string& path,
                              const RowQuery& query,
                              const RowVisitor& visit);

// Returns the error for a missing column of the query.
absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found);

}  // namespace dapd
