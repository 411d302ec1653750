// Reads the rows of a data file by column, whatever its format.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json.h"

namespace dapd {

// Maps each column to its text in a row. A missing or null value is absent;
// numbers and booleans are written as text (json_text.h, arrow_cell.h).
using TextRow = std::map<std::string, std::string>;

// One row, with the columns of a query.
struct DataRow {
  TextRow texts;  // RowQuery::columns
  // RowQuery::values, as JSON texts in the form of json.dumps in Python, with
  // ensure_ascii=False: a string is in quotes. Null is absent.
  TextRow values;
};

// This function is called with each row and its place ("file:12"). `row` is an
// error if the row could not be read. If the function returns an error, the
// reading ends.
using RowVisitor = std::function<absl::Status(
    const absl::StatusOr<DataRow>& row, const std::string& where)>;

inline constexpr size_t kMaxUnreadColumns = 200;

// `columns` are asked for as texts, and `values` as JSON values of any type.
// The `required` columns must exist in the data: the error about a missing one
// lists the existing columns and says that `column_settings` name the right
// ones; if a column has the name of conversations, it says that
// `messages_setting` reads it.
struct RowQuery {
  std::vector<std::string> columns;
  std::vector<std::string> required;
  std::string column_settings;
  std::vector<std::string> values = {};
  // Whether `values` are all columns. A cell of a type that has no JSON value
  // (bytes, timestamps) is left out then.
  bool wants_all_values = false;
  std::string messages_setting = "";  // empty: nothing reads conversations
  // Gets the names of columns that are not asked for, at most
  // kMaxUnreadColumns. A JSON column counts only if it holds a value.
  std::set<std::string>* unread = nullptr;
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

// Adds a column's value to DataRow::values, and nothing for null. The error
// names place and column.
absl::Status AddJsonValue(const nlohmann::ordered_json& value,
                          const std::string& column,
                          const std::string& where,
                          TextRow* values);

// Returns whether the query asks for a column, as a text or as a value.
bool IsAsked(const RowQuery& query, const std::string& column);

// Returns the error for a missing column of the query.
absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found);

}  // namespace dapd
