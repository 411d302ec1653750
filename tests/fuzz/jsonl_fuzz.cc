// Input: JSON Lines, or an array.
// The data set's reader gives the rows between newlines, or the elements of the
// text's array, both from the plain file and from a compressed file.
#include <zlib.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/base/check.h"
#include "common/base/json_lines.h"
#include "common/data/json_text.h"
#include "common/data/row_source.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

const RowQuery& Query() {
  static const auto& query = *new RowQuery{
      {"id", "problem", "solution", "answer"}, {"problem", "solution"}};
  return query;
}

struct Rows {
  std::vector<TextRow> good;
  int bad = 0;
  bool operator==(const Rows& other) const = default;
};

// Returns nothing if the file is refused, such as an array without an end.
std::optional<Rows> Read(const std::string& path) {
  Rows rows;
  const absl::Status status = VisitJsonRows(
      path,
      Query(),
      [&](const absl::StatusOr<DataRow>& row, const std::string&) {
        if (row.ok()) {
          rows.good.push_back(row->texts);
        } else {
          ++rows.bad;
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return std::nullopt;
  return rows;
}

void AddSlowly(const absl::StatusOr<nlohmann::json>& json, Rows* rows) {
  bool good = json.ok() && json->is_object() && json->contains("problem") &&
              json->contains("solution");
  TextRow row;
  for (const std::string& column : Query().columns) {
    if (!good || !json->contains(column)) continue;
    const nlohmann::json& value = (*json)[column];
    good = !value.is_structured();
    if (value.is_null() || !good) continue;
    const auto written = JsonText(value, column);
    good = written.ok();
    if (good) row[column] = *written;
  }
  if (good) {
    rows->good.push_back(row);
  } else {
    ++rows->bad;
  }
}

std::optional<Rows> SlowLines(absl::string_view text) {
  Rows rows;
  bool is_first = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == absl::string_view::npos) continue;
    if (std::exchange(is_first, false) &&
        line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin) == "{") {
      return std::nullopt;
    }
    AddSlowly(ParseJson(line, "line"), &rows);
  }
  return rows;
}

// Returns the rows of a text that is one JSON array.
Rows SlowElements(const nlohmann::json& array) {
  Rows rows;
  for (const nlohmann::json& element : array) {
    AddSlowly(element.is_string() ? nlohmann::json{{"text", element}} : element,
              &rows);
  }
  return rows;
}

void WriteCompressed(const std::string& path, absl::string_view text) {
  const gzFile file = ::gzopen(path.c_str(), "wb1");
  const auto size = static_cast<unsigned>(text.size());
  Check(file != nullptr &&
            (text.empty() ||
             ::gzwrite(file, text.data(), size) == static_cast<int>(size)) &&
            ::gzclose(file) == Z_OK,
        "a scratch file can be compressed");
}

void Run(absl::string_view text) {
  static const ScratchFolder folder;
  const std::string compressed = folder.path() + "/rows.jsonl.gz";
  WriteCompressed(compressed, text);
  absl::string_view plain = text;
  absl::ConsumePrefix(&plain, "\xEF\xBB\xBF");
  const size_t begin = plain.find_first_not_of(" \t\r\n");
  const bool is_array = begin != plain.npos && plain[begin] == '[';
  std::optional<Rows> expected;
  const absl::string_view mark = text.substr(0, 2);
  if (mark == "\xFF\xFE" || mark == "\xFE\xFF") {
    // UTF-16 is refused.
  } else if (!is_array) {
    expected = SlowLines(plain);
  } else if (const auto whole = ParseJson(plain, "file"); whole.ok()) {
    expected = SlowElements(*whole);
  } else {
    // Each bad element is refused, or the whole file.
    Read(compressed);
    return;
  }
  Check(Read(compressed) == expected, "compressed rows are the text's rows");
  // zlib takes a plain file that begins with gzip's first bytes for a
  // compressed file.
  if (text.substr(0, 2) == "\x1F\x8B") return;
  Check(Read(folder.Write("rows.jsonl", text)) == expected,
        "plain rows are the text's rows");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
