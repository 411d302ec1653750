#include "common/base/json_lines.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxOrderedKeys = 10'000;

// Ends the parser at once, since the rest of the text must cost no time.
struct Refusal {
  std::string problem;
};

// Refuses duplicate keys, deep nesting, and objects with more than `max_keys`
// keys, which nlohmann's default parser accepts.
template <typename Json>
class StrictParser {
 public:
  explicit StrictParser(size_t max_keys) : max_keys_(max_keys) {}

  bool operator()(int depth, typename Json::parse_event_t event, Json& parsed) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxDepth) throw Refusal{"nested too deeply"};
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto key = parsed.template get<std::string>();
      if (!keys_.back().insert(key).second) {
        throw Refusal{absl::StrCat("key '", key, "' occurs twice")};
      }
      if (keys_.back().size() > max_keys_) {
        throw Refusal{
            absl::StrCat("an object has more than ", max_keys_, " keys")};
      }
    }
    return true;
  }

 private:
  const size_t max_keys_;
  std::vector<std::set<std::string>> keys_;
};

template <typename Json>
absl::StatusOr<Json> ParseStrictly(absl::string_view text,
                                   const std::string& where,
                                   size_t max_keys) {
  // nlohmann takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return DataError(
        absl::StrCat(where, ": not valid JSON: byte ", zero + 1, " is zero"));
  }
  StrictParser<Json> strict(max_keys);
  Json value;
  try {
    value = Json::parse(
        text.begin(),
        text.end(),
        [&strict](int depth, typename Json::parse_event_t event, Json& parsed) {
          return strict(depth, event, parsed);
        });
  } catch (const nlohmann::json::exception& error) {
    if (IsLfsPointer(text)) {
      return DataError(absl::StrCat(where, kIsLfsPointer));
    }
    return DataError(
        absl::StrCat(where, ": not valid JSON: ", JsonProblem(error)));
  } catch (const Refusal& refusal) {
    return DataError(absl::StrCat(where, ": ", refusal.problem));
  }
  return value;
}

// `parse` makes a value of a line.
template <typename Parse, typename Visit>
absl::Status ForEachLine(const std::string& path,
                         const Parse& parse,
                         const Visit& visit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return WithExitCode(FileError("open", path, errno), ExitCode::kData);
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return DataError(absl::StrCat(path, " is a folder; a file was expected"));
  }
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    ASSIGN_OR_RETURN(const auto row,
                     parse(text, absl::StrCat(path, ":", line)));
    RETURN_IF_ERROR(visit(row, line));
  }
  if (file.bad()) {
    return absl::InternalError(absl::StrCat("reading ", path, " failed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text,
                                         const std::string& where) {
  return ParseStrictly<nlohmann::json>(
      text, where, std::numeric_limits<size_t>::max());
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(
    absl::string_view text, const std::string& where) {
  return ParseStrictly<nlohmann::ordered_json>(text, where, kMaxOrderedKeys);
}

absl::Status ForEachJsonLine(
    const std::string& path,
    const std::function<absl::Status(const nlohmann::json& row, int line)>&
        visit) {
  return ForEachLine(path, ParseJson, visit);
}

absl::Status ForEachOrderedJsonLine(
    const std::string& path,
    const std::function<absl::Status(const nlohmann::ordered_json& row,
                                     int line)>& visit) {
  return ForEachLine(path, ParseOrderedJson, visit);
}

absl::StatusOr<JsonLinesWriter> JsonLinesWriter::Open(const std::string& path) {
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  return JsonLinesWriter(std::move(file));
}

absl::Status JsonLinesWriter::Append(const nlohmann::ordered_json& row) {
  // Ill-formed UTF-8 (a token may end inside a character) is replaced.
  return file_.Append(absl::StrCat(
      row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      "\n"));
}

}  // namespace dapd
