// Input: JSON Lines.
// The data set's reader sees the rows that splitting at '\n' gives, from the
// plain file and from a compressed one.
#include <zlib.h>

#include <optional>
#include <vector>

#include "absl/strings/str_split.h"

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

// Nothing: the file is refused, as one that holds an array of rows is.
std::optional<Rows> Read(const std::string& path) {
  Rows rows;
  const absl::Status status = VisitJsonRows(
      path,
      Query(),
      [&](const absl::StatusOr<TextRow>& row, const std::string&) {
        if (row.ok()) {
          rows.good.push_back(*row);
        } else {
          ++rows.bad;
        }
        return absl::OkStatus();
      });
  if (!status.ok()) return std::nullopt;
  return rows;
}

std::optional<Rows> Slow(absl::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != absl::string_view::npos && text[begin] == '[') {
    return std::nullopt;
  }
  Rows rows;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.find_first_not_of(" \t\r") == absl::string_view::npos) continue;
    const auto json = ParseJson(line, "line");
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
      rows.good.push_back(row);
    } else {
      ++rows.bad;
    }
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
  const std::optional<Rows> expected = Slow(text);
  Check(Read(compressed) == expected, "compressed rows are the lines' rows");
  // zlib takes a plain file with gzip's first bytes for a compressed one.
  if (text.substr(0, 2) == "\x1F\x8B") return;
  Check(Read(folder.Write("rows.jsonl", text)) == expected,
        "plain rows are the lines' rows");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
