#include "common/data/file_pattern.h"

#include <fnmatch.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/base/printable.h"

namespace dapd {
namespace {

using Parts = std::vector<std::string>;

constexpr char kAnyFolders[] = "**";

// Counts the parts that begin with '.', including the file's name.
size_t HiddenParts(const Parts& parts) {
  size_t count = 0;
  for (const std::string& part : parts) count += part.starts_with('.') ? 1 : 0;
  return count;
}

size_t SpecialFolders(const Parts& parts) {
  size_t count = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    count += parts[i].starts_with("__") ? 1 : 0;
  }
  return count;
}

// Uses dynamic programming: a pattern with many ** would take exponential time
// otherwise.
bool MatchesParts(const Parts& pattern, const Parts& path) {
  // matches[j]: the parts of the pattern so far match the path's first j parts.
  std::vector<bool> matches(path.size() + 1);
  matches[0] = true;
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::vector<bool> next(path.size() + 1);
    if (pattern[i] == kAnyFolders) {
      // A ** at the end stands for at least a file.
      const size_t least = i + 1 == pattern.size() ? 1 : 0;
      bool reached = false;
      for (size_t j = least; j <= path.size(); ++j) {
        reached = reached || matches[j - least];
        next[j] = reached;
      }
    } else {
      for (size_t j = 0; j < path.size(); ++j) {
        next[j + 1] =
            matches[j] &&
            ::fnmatch(pattern[i].c_str(), path[j].c_str(), FNM_NOESCAPE) == 0;
      }
    }
    matches = std::move(next);
  }
  return matches[path.size()];
}

}  // namespace

bool HasWildcard(absl::string_view pattern) {
  return pattern.find_first_of("*?[") != absl::string_view::npos;
}

absl::StatusOr<std::string> NormalizePattern(absl::string_view pattern) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(pattern), "' ", why));
  };
  if (absl::StrContains(pattern, "://") || absl::StrContains(pattern, "::") ||
      absl::StartsWith(pattern, "/") || absl::StartsWith(pattern, "~")) {
    return refuse("leads out of the data set's folder");
  }
  Parts parts;
  for (const absl::string_view part : absl::StrSplit(pattern, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse("leads out of the data set's folder");
    if (part != kAnyFolders && absl::StrContains(part, kAnyFolders)) {
      return refuse(
          "has ** as a piece of a name; it must be alone between two slashes");
    }
    parts.emplace_back(part);
  }
  if (parts.empty()) return refuse("names no file");
  return absl::StrJoin(parts, "/");
}

bool MatchesPattern(const std::string& pattern, const std::string& path) {
  const Parts wanted = absl::StrSplit(pattern, '/');
  const Parts parts = absl::StrSplit(path, '/');
  return HiddenParts(wanted) == HiddenParts(parts) &&
         SpecialFolders(wanted) == SpecialFolders(parts) &&
         MatchesParts(wanted, parts);
}

}  // namespace dapd
