// The rows of a data file as texts by column, whatever its format.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Column -> text of one row. A missing or null value is absent; numbers and
// booleans are written out (json_text.h).
using TextRow = std::map<std::string, std::string>;

// Called with each row and its place ("file:12"). `row` not OK: the row could
// not be read. An error that it returns ends the reading.
using RowVisitor = std::function<absl::Status(
    const absl::StatusOr<TextRow>& row, const std::string& where)>;

// `columns`: what is asked for. `required` must exist in the data: if one does
// not, the error lists the columns found and says that `column_settings` name
// the right ones.
struct RowQuery {
  std::vector<std::string> columns;
  std::vector<std::string> required;
  std::string column_settings;
};

// *.jsonl, *.json, and these with .gz.
absl::Status VisitJsonRows(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit);

// *.parquet, through Apache Arrow.
absl::Status VisitParquetRows(const std::string& path,
                              const RowQuery& query,
                              const RowVisitor& visit);

// The error for a column of the query that is not there.
absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found);

}  // namespace dapd
