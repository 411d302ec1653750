#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
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

constexpr size_t kMaxRowBytes = size_t{64} << 20;
constexpr unsigned kBlockBytes = 1 << 16;

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
// Names that data sets give to columns of conversations, with whose form it is.
constexpr std::pair<const char*, const char*> kConversationColumns[] = {
    {"messages", "OpenAI"},
    {"conversations", "ShareGPT"},
    {"conversation", "ShareGPT"}};

constexpr char kBlanks[] = " \t\r\n";

// Reads the rows of a plain or gzip file (zlib reads plain files, too): its
// lines, or the elements of the array at its beginning.
class RowReader {
 public:
  static absl::StatusOr<RowReader> Open(const std::string& path) {
    errno = 0;
    const gzFile file = ::gzopen(path.c_str(), "rb");
    if (file == nullptr) {
      // zlib does not set errno if memory is short.
      const int error = errno != 0 ? errno : ENOMEM;
      return WithExitCode(FileError("open", path, error), ExitCode::kData);
    }
    ::gzbuffer(file, 1 << 18);
    return RowReader(path, file);
  }
  RowReader(RowReader&& other) noexcept
      : path_(std::move(other.path_)),
        file_(std::exchange(other.file_, nullptr)),
        block_(std::move(other.block_)) {}
  ~RowReader() {
    if (file_ != nullptr) ::gzclose(file_);
  }

  // Returns whether the file holds an array, and reads everything before the
  // first row. It must be called once, before all other functions.
  absl::StatusOr<bool> BeginArray() {
    ASSIGN_OR_RETURN(bool more, ReadBlock());
    if (absl::StartsWith(block_, kByteOrderMark)) {
      position_ = kByteOrderMark.size();
    }
    // PowerShell writes the output of a command in UTF-16.
    if (absl::StartsWith(block_, "\xFF\xFE") ||
        absl::StartsWith(block_, "\xFE\xFF")) {
      return DataError(absl::StrCat(path_,
                                    " is in UTF-16; UTF-8 is read: iconv -f "
                                    "UTF-16 -t UTF-8 converts it"));
    }
    while (more) {
      const size_t begin = block_.find_first_not_of(kBlanks, position_);
      if (begin != std::string::npos) {
        if (block_[begin] != '[') return false;
        position_ = begin + 1;
        return true;
      }
      blank_lines_ +=
          std::count(block_.begin() + position_, block_.end(), '\n');
      ASSIGN_OR_RETURN(more, ReadBlock());
    }
    return false;
  }

  // Returns the number of line feeds that BeginArray has skipped.
  int64_t blank_lines() const { return blank_lines_; }

  // Returns false at the end. `where` is for messages. If a line is too long,
  // its beginning is in `line`.
  absl::StatusOr<bool> NextLine(const std::string& where, std::string* line) {
    line->clear();
    while (true) {
      // gzgets cannot distinguish a zero byte in the file from the zero byte
      // that it appends.
      const size_t end = block_.find('\n', position_);
      line->append(block_, position_, end - position_);
      RETURN_IF_ERROR(CheckLength(where, "line", *line));
      if (end != std::string::npos) {
        position_ = end + 1;
        return true;
      }
      ASSIGN_OR_RETURN(const bool more, ReadBlock());
      if (!more) return !line->empty();
    }
  }

  // Reads the text of the array's next element, which may be anything. Returns
  // false behind the last element, and an error if the file ends before the
  // array, or continues behind it.
  absl::StatusOr<bool> NextElement(const std::string& where,
                                   std::string* element) {
    element->clear();
    if (has_ended_) return false;
    int depth = 0;
    bool is_text = false;
    bool is_escaped = false;
    while (true) {
      const size_t begin = position_;
      for (; position_ < block_.size(); ++position_) {
        const char c = block_[position_];
        if (is_text) {
          is_text = is_escaped || c != '"';
          is_escaped = !is_escaped && c == '\\';
          continue;
        }
        is_text = c == '"';
        if (depth == 0 && (c == ',' || c == ']')) {
          element->append(block_, begin, position_ - begin);
          RETURN_IF_ERROR(CheckLength(where, "row", *element));
          ++position_;
          return EndElement(where, c == ']', *element);
        }
        if (c == '{' || c == '[') ++depth;
        if ((c == '}' || c == ']') && depth > 0) --depth;
      }
      element->append(block_, begin, position_ - begin);
      RETURN_IF_ERROR(CheckLength(where, "row", *element));
      ASSIGN_OR_RETURN(const bool more, ReadBlock());
      if (!more) {
        return DataError(absl::StrCat(
            path_, ": the file ends within its JSON array, at ", where));
      }
    }
  }

 private:
  RowReader(std::string path, gzFile file)
      : path_(std::move(path)), file_(file) {}

  static absl::Status CheckLength(const std::string& where,
                                  absl::string_view what,
                                  const std::string& text) {
    if (text.size() <= kMaxRowBytes) return absl::OkStatus();
    return DataError(
        absl::StrCat(where,
                     ": the ",
                     what,
                     " is longer than ",
                     kMaxRowBytes >> 20,
                     " MiB; remove the row, or its columns that are not read"));
  }

  absl::StatusOr<bool> EndElement(const std::string& where,
                                  bool is_last,
                                  const std::string& element) {
    const bool is_empty =
        element.find_first_not_of(kBlanks) == std::string::npos;
    const bool is_first = !std::exchange(has_element_, true);
    if (is_last) {
      has_ended_ = true;
      RETURN_IF_ERROR(CheckNothingFollows());
      if (is_empty && is_first) return false;
    }
    if (!is_empty) return true;
    return DataError(
        absl::StrCat(where, ": there is no row between two commas"));
  }

  absl::Status CheckNothingFollows() {
    while (true) {
      if (block_.find_first_not_of(kBlanks, position_) != std::string::npos) {
        return DataError(absl::StrCat(
            path_, ": something follows the JSON array that the file holds"));
      }
      ASSIGN_OR_RETURN(const bool more, ReadBlock());
      if (!more) return absl::OkStatus();
    }
  }

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
  size_t position_ = 0;  // beginning of the bytes that are not taken yet
  int64_t blank_lines_ = 0;
  bool has_element_ = false;
  bool has_ended_ = false;
};

absl::Status AddJsonValues(const nlohmann::ordered_json& json,
                           const std::string& where,
                           const RowQuery& query,
                           TextRow* values) {
  if (query.wants_all_values) {
    for (const auto& item : json.items()) {
      RETURN_IF_ERROR(AddJsonValue(item.value(), item.key(), where, values));
    }
    return absl::OkStatus();
  }
  for (const std::string& column : query.values) {
    const auto found = json.find(column);
    if (found == json.end()) continue;
    RETURN_IF_ERROR(AddJsonValue(*found, column, where, values));
  }
  return absl::OkStatus();
}

// `Json` keeps the order of keys if values are asked for.
template <typename Json>
absl::StatusOr<DataRow> ToDataRow(const Json& json,
                                  const std::string& where,
                                  const RowQuery& query) {
  if (!json.is_object()) {
    return DataError(absl::StrCat(where, ": the row is not a JSON object"));
  }
  for (const auto& item : json.items()) {
    if (query.unread != nullptr && query.unread->size() < kMaxUnreadColumns &&
        !item.value().empty() && item.value() != "" &&
        !IsAsked(query, item.key())) {
      query.unread->insert(item.key());
    }
  }
  DataRow row;
  for (const std::string& column : query.columns) {
    if (!json.contains(column) || json[column].is_null()) continue;
    const Json& value = json[column];
    const std::string what = absl::StrCat(where, ": column '", column, "'");
    if (value.is_structured()) {
      return DataError(absl::StrCat(
          what, " holds ", value.type_name(), "; a string is needed"));
    }
    ASSIGN_OR_RETURN(row.texts[column], JsonText(value, what));
  }
  for (const std::string& column : query.required) {
    if (json.contains(column)) continue;
    std::vector<std::string> found;
    for (const auto& item : json.items()) found.push_back(item.key());
    std::ranges::sort(found);
    return MissingColumn(where, query, column, found);
  }
  if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
    RETURN_IF_ERROR(AddJsonValues(json, where, query, &row.values));
  }
  return row;
}

// In an array a text stands for a row.
template <typename Json>
absl::StatusOr<DataRow> RowOf(absl::StatusOr<Json> json,
                              const std::string& where,
                              const RowQuery& query,
                              bool is_element) {
  RETURN_IF_ERROR(json.status());
  if (is_element && json->is_string()) {
    return ToDataRow(Json{{"text", *std::move(json)}}, where, query);
  }
  return ToDataRow(*json, where, query);
}

absl::StatusOr<DataRow> ParseRow(const std::string& text,
                                 const std::string& where,
                                 const RowQuery& query,
                                 bool is_element) {
  return query.values.empty() && !query.wants_all_values
             ? RowOf(ParseJson(text, where), where, query, is_element)
             : RowOf(ParseOrderedJson(text, where), where, query, is_element);
}

absl::Status VisitLines(const std::string& path,
                        const RowQuery& query,
                        const RowVisitor& visit,
                        RowReader* reader) {
  std::string line;
  bool is_first = true;
  for (int64_t number = 1 + reader->blank_lines();; ++number) {
    const std::string where = absl::StrCat(path, ":", number);
    ASSIGN_OR_RETURN(const bool more, reader->NextLine(where, &line));
    if (!more) return absl::OkStatus();
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string::npos) continue;
    // Without this check each line of the object would be reported as bad JSON.
    if (std::exchange(is_first, false) &&
        line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin) == "{") {
      return DataError(
          absl::StrCat(where,
                       ": a JSON object that takes several lines; a file must "
                       "have one row per line, or one array of rows: jq -c . ",
                       path,
                       " > rows.jsonl writes each object in a line"));
    }
    RETURN_IF_ERROR(
        visit(ParseRow(line, where, query, /*is_element=*/false), where));
  }
}

absl::Status VisitElements(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit,
                           RowReader* reader) {
  std::string element;
  for (int64_t number = 1;; ++number) {
    const std::string where = absl::StrCat(path, " row ", number);
    ASSIGN_OR_RETURN(const bool more, reader->NextElement(where, &element));
    if (!more) return absl::OkStatus();
    RETURN_IF_ERROR(
        visit(ParseRow(element, where, query, /*is_element=*/true), where));
  }
}

}  // namespace

absl::Status AddJsonValue(const nlohmann::ordered_json& value,
                          const std::string& column,
                          const std::string& where,
                          TextRow* values) {
  if (value.is_null()) return absl::OkStatus();
  auto text = PythonJson(value);
  if (!text.ok()) {
    return DataError(absl::StrCat(where,
                                  ": column '",
                                  column,
                                  "' holds ",
                                  std::string(text.status().message())));
  }
  (*values)[column] = *std::move(text);
  return absl::OkStatus();
}

bool IsAsked(const RowQuery& query, const std::string& column) {
  return query.wants_all_values ||
         std::ranges::count(query.columns, column) > 0 ||
         std::ranges::count(query.values, column) > 0;
}

absl::Status MissingColumn(const std::string& path,
                           const RowQuery& query,
                           const std::string& column,
                           const std::vector<std::string>& found) {
  std::string conversations;
  for (const auto& [name, form] : kConversationColumns) {
    if (query.messages_setting.empty() ||
        std::ranges::count(found, name) == 0) {
      continue;
    }
    conversations = absl::StrCat("; the column '",
                                 name,
                                 "' has the name of conversations in ",
                                 form,
                                 "'s form, which ",
                                 query.messages_setting,
                                 name,
                                 " reads");
    break;
  }
  return DataError(absl::StrCat(path,
                                ": there is no column '",
                                column,
                                "'; found: ",
                                absl::StrJoin(found, ", "),
                                "; name the right ones with ",
                                query.column_settings,
                                conversations));
}

absl::Status VisitJsonRows(const std::string& path,
                           const RowQuery& query,
                           const RowVisitor& visit) {
  ASSIGN_OR_RETURN(RowReader reader, RowReader::Open(path));
  ASSIGN_OR_RETURN(const bool is_array, reader.BeginArray());
  return is_array ? VisitElements(path, query, visit, &reader)
                  : VisitLines(path, query, visit, &reader);
}

}  // namespace dapd
