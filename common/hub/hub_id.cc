#include "common/hub/hub_id.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace dapd {
namespace {

constexpr size_t kMaxNameBytes = 96;       // limit for each part
constexpr size_t kMaxRevisionBytes = 200;  // longer than any branch's name

bool IsWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool IsPart(absl::string_view part) {
  return !part.empty() && part.size() <= kMaxNameBytes &&
         IsWord(part.front()) && IsWord(part.back()) &&
         std::all_of(part.begin(), part.end(), [](char c) {
           return IsWord(c) || c == '-' || c == '.';
         });
}

// The hub has pages at the place of these owners, so "models/Qwen3-4B" can only
// mean a folder.
bool IsPage(absl::string_view owner) {
  return owner == "models" || owner == "datasets" || owner == "spaces";
}

bool IsName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  return parts.size() <= 2 && std::all_of(parts.begin(), parts.end(), IsPart) &&
         !(parts.size() == 2 && IsPage(parts.front())) &&
         !absl::StrContains(name, "..") && !absl::StrContains(name, "--");
}

// Accepts a subset of git's revisions: "v1.0", "refs/pr/3".
bool IsRevision(absl::string_view revision) {
  return !revision.empty() && revision.size() <= kMaxRevisionBytes &&
         IsWord(revision.front()) && IsWord(revision.back()) &&
         !absl::StrContains(revision, "..") &&
         !absl::StrContains(revision, "//") &&
         std::all_of(revision.begin(), revision.end(), [](char c) {
           return IsWord(c) || c == '-' || c == '.' || c == '/';
         });
}

}  // namespace

std::optional<HubId> ParseHubId(absl::string_view text) {
  const size_t at = text.find('@');
  const absl::string_view name = text.substr(0, at);
  if (!IsName(name)) return std::nullopt;
  if (at == absl::string_view::npos) return HubId{std::string(name), ""};
  const absl::string_view revision = text.substr(at + 1);
  if (!IsRevision(revision)) return std::nullopt;
  return HubId{std::string(name), std::string(revision)};
}

std::string FetchCommand(HubKind kind, const HubId& id) {
  return absl::StrCat("deploy/fetch.sh ",
                      kind == HubKind::kModel ? "model " : "data ",
                      id.ToString());
}

}  // namespace dapd
