#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/data/json_text.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

constexpr size_t kMaxLineBytes = size_t{64} << 20;
constexpr unsigned kBlockBytes = 1 << 16;

// Reads lines of a plain or gzip file (zlib passes plain files through).
class LineReader {
 public:
  static absl::StatusOr<LineReader> Open(const std::string& path) {
    errno = 0;
    const gzFile file = ::gzopen(path.c_str(), "rb");
    if (file == nullptr) {
      // zlib sets none where it has no memory.
      const int error = errno != 0 ? errno : ENOMEM;
      return WithExitCode(FileError("open", path, error), ExitCode::kData);
    }
    ::gzbuffer(file, 1 << 18);
    return LineReader(path, file);
  }
  LineReader(LineReader&& other) noexcept
      : path_(std::move(other.path_)),
        file_(std::exchange(other.file_, nullptr)),
        block_(std::move(other.block_)),
        position_(other.position_) {}
  ~LineReader() {
    if (file_ != nullptr) ::gzclose(file_);
  }

  // False at the end. `where`: for messages. Of a line that is too long the
  // beginning is left in `line`.
  absl::StatusOr<bool> Next(const std::string& where, std::string* line) {
    line->clear();
    while (true) {
      // Not gzgets: it cannot tell a zero byte in the file from its own.
      const size_t end = block_.find('\n', position_);
      line->append(block_, position_, end - position_);
      if (line->size() > kMaxLineBytes) {
        return DataError(
            absl::StrCat(where,
                         ": the line is longer than ",
                         kMaxLineBytes >> 20,
                         " MiB; leave the row out, or what it "
                         "holds beside the columns that are read"));
      }
      if (end != std::string::npos) {
        position_ = end + 1;
        return true;
      }
      ASSIGN_OR_RETURN(const bool more, ReadBlock());
      if (!more) return !line->empty();
    }
  }

 private:
  LineReader(std::string path, gzFile file)
      : path_(std::move(path)), file_(file) {}

  absl::StatusOr<bool> ReadBlock() {
    block_.resize(kBlockBytes);
    position_ = 0;
    const int count = ::gzread(file_, block_.data(), kBlockBytes);
    block_.resize(static_cast<size_t>(std::max(count, 0)));
    int error = Z_OK;
    const char* text = ::gzerror(file_, &error);
    if (count < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      return DataError(absl::StrCat(path_, ": ", text));
    }
    return count > 0;
  }

  std::string path_;
  gzFile file_;
  std::string block_;
  size_t position_ = 0;  // of what is not yet taken
};

absl::StatusOr<TextRow> ToTextRow(const std::string& line,
                                  const std::string& where,
                                  const RowQuery& query) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(line, where));
  if (!json.is_object()) {
    return DataError(absl::StrCat(where, ": the line is not a JSON object"));
  }
  TextRow row;
  for (const std::string& column : query.columns) {
    if (!json.contains(column) || json[column].is_null()) continue;
    const nlohmann::json& value = json[column];
    const std::string what = absl::StrCat(where, ": column '", column, "'");
    if (value.is_structured()) {
      return DataError(absl::StrCat(
          what, " holds ", value.type_name(), "; a string is needed"));
    }
    ASSIGN_OR_RETURN(row[column], JsonText(value, what));
  }
  for (const std::string& column : query.required) {
    if (json.contains(column)) continue;
    std::vector<std::string> found;
    for (const auto& item : json.items()) found.push_back(item.key());
    return MissingColumn(where, query, column, found);
  }
  return row;
}

}  // namespace

absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found) {
  return DataError(absl::StrCat(path,
                                ": there is no column '",
                                column,
                                "'; found: ",
                                absl::StrJoin(found, ", "),
                                "; name the right ones with ",
                                query.column_settings));
}

absl::Status VisitJsonRows(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit) {
  ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  std::string line;
  bool is_first = true;
  for (int64_t number = 1;; ++number) {
    const std::string where = absl::StrCat(path, ":", number);
    const absl::StatusOr<bool> more = reader.Next(where, &line);
    const size_t begin = line.find_first_not_of(" \t\r");
    const bool is_blank = begin == std::string::npos;
    // Else each of its lines would be called bad JSON, or its only one too
    // long.
    if (!is_blank && std::exchange(is_first, false) && line[begin] == '[') {
      return DataError(absl::StrCat(path,
                                    " holds one JSON array; JSON Lines are "
                                    "expected, one row per line: jq -c '.[]' ",
                                    path,
                                    " > rows.jsonl converts it"));
    }
    RETURN_IF_ERROR(more.status());
    if (!*more) return absl::OkStatus();
    if (is_blank) continue;
    RETURN_IF_ERROR(visit(ToTextRow(line, where, query), where));
  }
}

}  // namespace dapd
