// The rows of a data file as texts by column, whatever its format.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Column -> text of one row. A missing or null value is absent; numbers and
// booleans are written out (json_text.h, arrow_cell.h).
using TextRow = std::map<std::string, std::string>;

// Called with each row and its place ("file:12"). `row` not OK: the row could
// not be read. An error that it returns ends the reading.
using RowVisitor = std::function<absl::Status(
    const absl::StatusOr<TextRow>& row, const std::string& where)>;

inline constexpr size_t kMaxUnreadColumns = 200;

// `columns`: what is asked for. `required` must exist in the data: if one does
// not, the error lists the columns found and says that `column_settings` name
// the right ones.
struct RowQuery {
  std::vector<std::string> columns;
  std::vector<std::string> required;
  std::string column_settings;
  // Gets names of columns that are not asked for, at most kMaxUnreadColumns; of
  // JSON, where they hold something.
  std::set<std::string>* unread = nullptr;
};

// JSON Lines, or one array of rows, whatever precedes it (a byte order mark,
// blanks); plain or compressed by gzip. A text in an array stands for the row
// {"text": ...}, as it does for `datasets`.
absl::Status VisitJsonRows(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit);

// A stream of Apache Arrow's, as save_to_disk of `datasets` writes it, or a
// file.
absl::Status VisitArrowRows(const std::string& path,
                            const RowQuery& query,
                            const RowVisitor& visit);

absl::Status VisitParquetRows(const std::string& path,
                              const RowQuery& query,
                              const RowVisitor& visit);

// The error for a column of the query that is not there.
absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found);

}  // namespace dapd
