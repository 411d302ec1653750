#include "common/copy/run_copy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/random_name.h"
#include "common/base/safe_name.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr int64_t kMaxStep = 1'000'000'000;
// A commit takes 110 bytes for the samples of each step.
constexpr int64_t kMaxCommitBytes = int64_t{64} << 20;
constexpr size_t kDigestDigits = 64;
constexpr size_t kMaxLevels = 8;
constexpr uint64_t kMaxIdBytes = 1 << 12;
constexpr char kIdFile[] = "copy.json";

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

bool IsSafePath(absl::string_view path) {
  const std::vector<absl::string_view> levels = absl::StrSplit(path, '/');
  return levels.size() <= kMaxLevels &&
         std::ranges::all_of(levels, &IsSafeName);
}

absl::StatusOr<Content> ParsePart(const nlohmann::json& row) {
  if (!row.is_array() || row.size() != 2 || !row[1].is_string() ||
      !IsHex(row[1].get_ref<const std::string&>(), kDigestDigits)) {
    return absl::DataLossError("a part is not [bytes, SHA-256]");
  }
  Content part;
  ASSIGN_OR_RETURN(part.bytes, JsonInteger(row[0], 1));
  part.sha256 = row[1].get<std::string>();
  return part;
}

absl::StatusOr<RunCopy> ParseBody(const nlohmann::json& body) try {
  if (body.at("format") != kFormat) {
    return absl::DataLossError(absl::StrCat(
        "it has format ", body.at("format").dump(), ", not ", kFormat));
  }
  RunCopy copy;
  ASSIGN_OR_RETURN(copy.step, JsonInteger(body.at("step"), 0, kMaxStep));
  body.at("run").get_to(copy.run_id);
  int64_t bytes = 0;  // sum over all files
  for (const auto& [path, parts] : body.at("files").items()) {
    if (!IsSafePath(path)) {
      return absl::DataLossError(
          absl::StrCat("'", Printable(path), "' is not a file of a run"));
    }
    std::vector<Content>& file = copy.files[path];
    for (const nlohmann::json& row : parts) {
      ASSIGN_OR_RETURN(Content part, ParsePart(row));
      if (__builtin_add_overflow(bytes, part.bytes, &bytes)) {
        return absl::DataLossError("files of impossible length");
      }
      file.push_back(std::move(part));
    }
  }
  return copy;
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(Printable(error.what()));
}

}  // namespace

int64_t BytesOf(const std::vector<Content>& parts) {
  int64_t bytes = 0;
  for (const Content& part : parts) bytes += part.bytes;
  return bytes;
}

int64_t BytesOf(const RunCopy& copy) {
  int64_t bytes = 0;
  for (const auto& [path, parts] : copy.files) bytes += BytesOf(parts);
  return bytes;
}

std::string CommitText(const RunCopy& copy) {
  // nlohmann::ordered_json would search all its keys for each new key, and a
  // long run has a hundred thousand files.
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [path, parts] : copy.files) {
    nlohmann::json& rows = files[path] = nlohmann::json::array();
    for (const Content& part : parts) {
      rows.push_back(nlohmann::json::array({part.bytes, part.sha256}));
    }
  }
  const std::string head = OrderedJson{
      {"format", kFormat},
      {"step", copy.step},
      {"run", copy.run_id}}.dump();
  const std::string body =
      absl::StrCat(absl::string_view(head).substr(0, head.size() - 1),
                   ",\"files\":",
                   files.dump(),
                   "}");
  return absl::StrCat(body, "\n", Sha256Hex(body), "\n");
}

absl::StatusOr<RunCopy> ParseCommit(absl::string_view text,
                                    const std::string& where) {
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(where, " is damaged: ", why));
  };
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() != 3 || !lines[2].empty() ||
      lines[1] != Sha256Hex(lines[0])) {
    return damaged("its digest differs");
  }
  const auto body = ParseJson(lines[0], where);
  if (!body.ok()) return damaged(body.status().message());
  if (!body->is_object()) return damaged("it is not an object");
  auto copy = ParseBody(*body);
  if (!copy.ok()) return damaged(copy.status().message());
  return copy;
}

std::string CommitName(int64_t step) {
  return absl::StrFormat("%s/step-%06d.json", kCopyCommits, step);
}

std::optional<int64_t> StepOfCommit(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, absl::StrCat(kCopyCommits, "/step-")) ||
      !absl::ConsumeSuffix(&name, ".json") || !absl::SimpleAtoi(name, &step) ||
      step < 0 || step > kMaxStep ||
      CommitName(step) != absl::StrCat(kCopyCommits, "/step-", name, ".json")) {
    return std::nullopt;
  }
  return step;
}

std::string ObjectName(const Content& content) {
  return absl::StrCat(kCopyObjects, "/", content.sha256);
}

bool IsObjectName(absl::string_view name) {
  return absl::ConsumePrefix(&name, absl::StrCat(kCopyObjects, "/")) &&
         IsHex(name, kDigestDigits);
}

bool IsPartName(absl::string_view name) {
  return absl::EndsWith(name, ".part");
}

absl::StatusOr<std::vector<int64_t>> ListCommits(ObjectStore& store) {
  ASSIGN_OR_RETURN(const auto objects, store.List(kCopyCommits));
  std::vector<int64_t> steps;
  for (const auto& [name, object] : objects) {
    if (const auto step = StepOfCommit(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

absl::StatusOr<RunCopy> ReadCommit(ObjectStore& store, int64_t step) {
  const std::string name = CommitName(step);
  ASSIGN_OR_RETURN(const std::string text, store.Read(name, kMaxCommitBytes));
  const std::string where = absl::StrCat(store.url(), "/", name);
  ASSIGN_OR_RETURN(RunCopy copy, ParseCommit(text, where));
  if (copy.step != step) {
    return absl::DataLossError(
        absl::StrCat(where, " is damaged: it is of step ", copy.step));
  }
  return copy;
}

absl::StatusOr<std::string> RunId(const std::string& folder) {
  const std::string path = JoinPath(folder, kIdFile);
  if (!FileExists(path)) {
    std::string id = RandomName();
    RETURN_IF_ERROR(
        WriteFileAtomically(path, OrderedJson{{"run", id}}.dump() + "\n"));
    return id;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIdBytes));
  const auto row = ParseJson(text, path);
  if (!row.ok() || !row->is_object() || !row->contains("run") ||
      !row->at("run").is_string() ||
      !IsHex(row->at("run").get_ref<const std::string&>(), 32)) {
    return absl::DataLossError(absl::StrCat(
        path,
        " does not say which run this is; bring it back from the copy's "
        "owner.json, or remove it and copy to another place"));
  }
  return row->at("run").get<std::string>();
}

}  // namespace dapd
