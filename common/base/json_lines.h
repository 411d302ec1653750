// JSON Lines: one JSON value a line, split at '\n' only (a value may hold any
// other line separator), UTF-8.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/json.h"

namespace dapd {

// Parses one JSON text: depth at most 64, no trailing text, valid UTF-8,
// duplicate keys refused. `where` ("file:line") leads the error message.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text,
                                         const std::string& where);

// Calls `visit` with each value and its 1-based line number; empty lines are
// skipped. Stops at the first error, which names the file and line.
absl::Status ForEachJsonLine(
    const std::string& path,
    const std::function<absl::Status(const nlohmann::json& row, int line)>&
        visit);

// Writes JSON Lines aside and renames at Commit().
class JsonLinesWriter {
 public:
  static absl::StatusOr<JsonLinesWriter> Open(const std::string& path);
  absl::Status Append(const nlohmann::ordered_json& row);
  absl::Status Commit() { return file_.Commit(); }

 private:
  explicit JsonLinesWriter(AtomicFileWriter file) : file_(std::move(file)) {}
  AtomicFileWriter file_;
};

}  // namespace dapd
