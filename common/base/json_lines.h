// JSON Lines in UTF-8: one JSON value per line. Lines end at '\n' only, since a
// value may contain any other line separator.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/json.h"

namespace dapd {

// Parses one JSON text of depth at most 64. Text after the value, invalid
// UTF-8, zero bytes and duplicate keys are errors. `where` ("file:line") begins
// the error message.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text,
                                         const std::string& where);
// Parses as ParseJson does, and keeps the order of an object's keys. An object
// with more than 10,000 keys is an error, too: looking up its keys would take
// time that grows with the square of their number.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(
    absl::string_view text, const std::string& where);

// Calls `visit` with each value and its 1-based line number; empty lines are
// skipped. Stops at the first error, which names the file and line.
absl::Status ForEachJsonLine(
    const std::string& path,
    const std::function<absl::Status(const nlohmann::json& row, int line)>&
        visit);

// The same for values that keep the order of an object's keys
// (ParseOrderedJson).
absl::Status ForEachOrderedJsonLine(
    const std::string& path,
    const std::function<absl::Status(const nlohmann::ordered_json& row,
                                     int line)>& visit);

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
