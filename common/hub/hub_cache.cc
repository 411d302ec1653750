#include "common/hub/hub_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"
#include "common/base/user_path.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRefBytes = 256;
constexpr uint64_t kMaxListBytes = uint64_t{256} << 20;
constexpr size_t kCommitDigits = 40;
constexpr int64_t kListFormat = 1;
constexpr size_t kMaxRevisionsNamed = 8;

std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Expands "~/x", "$NAME/x" and "${NAME}/x"; a variable without a value stays as
// it is.
std::string Expand(const std::string& text) {
  std::string path = text;
  if (path == "~" || absl::StartsWith(path, "~/")) {
    path.replace(0, 1, HomeFolder());
  }
  std::string expanded;
  for (size_t i = 0; i < path.size();) {
    const bool braced = path[i] == '$' && path.substr(i + 1, 1) == "{";
    const size_t start = i + (braced ? 2 : 1);
    size_t end = start;
    while (path[i] == '$' && end < path.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(path[end])) ||
            path[end] == '_')) {
      ++end;
    }
    const std::string value =
        end > start ? Variable(path.substr(start, end - start)) : "";
    if (value.empty() || (braced && path.substr(end, 1) != "}")) {
      expanded.push_back(path[i++]);
      continue;
    }
    expanded += value;
    i = end + (braced ? 1 : 0);
  }
  return expanded;
}

bool IsCommit(absl::string_view text) {
  return text.size() == kCommitDigits &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
         });
}

std::string RepositoryFolder(HubKind kind, const HubId& id) {
  return JoinPath(
      HubCacheFolder(),
      absl::StrCat(kind == HubKind::kModel ? "models--" : "datasets--",
                   absl::StrReplaceAll(id.name, {{"/", "--"}})));
}

absl::Status NotCached(HubKind kind,
                       const HubId& id,
                       const std::string& problem) {
  return WithExitCode(
      absl::NotFoundError(absl::StrCat(
          problem, "; download it with: ", FetchCommand(kind, id))),
      ExitCode::kData);
}

// Returns the cached revisions as a text such as "main, v1.0".
std::string CachedRevisions(const std::string& refs) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(refs, error);
       !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (entry->is_regular_file(error)) {
      names.push_back(entry->path().lexically_relative(refs));
    }
  }
  std::sort(names.begin(), names.end());
  if (names.size() > kMaxRevisionsNamed) {
    names.resize(kMaxRevisionsNamed);
    names.push_back("...");
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

absl::StatusOr<std::string> FindCommit(HubKind kind,
                                       const HubId& id,
                                       const std::string& repository) {
  if (IsCommit(id.revision)) return absl::AsciiStrToLower(id.revision);
  const std::string revision = id.RevisionOrMain();
  const std::string refs = JoinPath(repository, "refs");
  const std::string path = JoinPath(refs, revision);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return NotCached(kind,
                     id,
                     absl::StrCat(repository,
                                  " has no revision ",
                                  revision,
                                  " (available: ",
                                  CachedRevisions(refs),
                                  ")"));
  }
  auto text = ReadFile(path, kMaxRefBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  const std::string commit(absl::StripAsciiWhitespace(*text));
  if (IsCommit(commit)) return commit;
  return HalfDownload(
      kind,
      id,
      absl::StrCat(path, " holds '", commit, "', which is not a commit"));
}

// Returns the hub's list of the commit's files if it can be read: other
// versions of the client write no list, or another format.
std::optional<std::map<std::string, uint64_t>> ReadList(
    const std::string& path) {
  const auto text = ReadFile(path, kMaxListBytes);
  if (!text.ok()) return std::nullopt;
  const auto list = ParseJson(*text, path);
  int64_t format = 0;
  if (!list.ok() || !list->is_object() || !list->contains("format_version") ||
      !ReadNumber((*list)["format_version"], &format) ||
      format != kListFormat || !list->contains("files") ||
      !(*list)["files"].is_object()) {
    return std::nullopt;
  }
  std::map<std::string, uint64_t> files;
  for (const auto& [name, file] : (*list)["files"].items()) {
    uint64_t size = 0;
    if (!file.is_object() || !file.contains("size") ||
        !ReadNumber(file["size"], &size)) {
      return std::nullopt;
    }
    files[name] = size;
  }
  return files;
}

std::string FindUnfinished(const std::string& blobs) {
  const auto names = ListFolder(blobs);
  if (!names.ok()) return "";
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, ".incomplete")) return JoinPath(blobs, name);
  }
  return "";
}

}  // namespace

std::string HubCacheFolder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = Variable(name); !cache.empty()) {
      return Expand(cache);
    }
  }
  std::string home = Variable("HF_HOME");
  if (home.empty()) {
    const std::string base = Variable("XDG_CACHE_HOME");
    home = JoinPath(base.empty() ? "~/.cache" : base, "huggingface");
  }
  return JoinPath(Expand(home), "hub");
}

absl::StatusOr<HubSnapshot> FindSnapshot(HubKind kind, const HubId& id) {
  const std::string repository = RepositoryFolder(kind, id);
  std::error_code error;
  if (!fs::is_directory(repository, error)) {
    RETURN_IF_ERROR(CheckMayLookFor(repository, error));
    return NotCached(
        kind,
        id,
        absl::StrCat(kind == HubKind::kModel ? "the model " : "the data set ",
                     id.name,
                     " is not in the cache ",
                     HubCacheFolder()));
  }
  HubSnapshot snapshot;
  ASSIGN_OR_RETURN(snapshot.commit, FindCommit(kind, id, repository));
  snapshot.folder =
      JoinPath(JoinPath(repository, "snapshots"), snapshot.commit);
  if (!fs::is_directory(snapshot.folder, error)) {
    return IsCommit(id.revision)
               ? NotCached(kind,
                           id,
                           absl::StrCat(
                               repository, " has no commit ", snapshot.commit))
               : HalfDownload(
                     kind, id, snapshot.folder + " does not exist yet");
  }
  snapshot.listed = ReadList(JoinPath(JoinPath(repository, "trees"),
                                      absl::StrCat(snapshot.commit, ".json")));
  snapshot.unfinished = FindUnfinished(JoinPath(repository, "blobs"));
  return snapshot;
}

absl::Status CheckFile(HubKind kind,
                       const HubId& id,
                       const HubSnapshot& snapshot,
                       const std::string& path) {
  if (snapshot.listed.has_value() && !snapshot.listed->contains(path)) {
    return absl::OkStatus();
  }
  const std::string full = JoinPath(snapshot.folder, path);
  std::error_code error;
  const uint64_t size = fs::file_size(full, error);
  if (error) {
    return HalfDownload(
        kind,
        id,
        fs::is_symlink(full, error)
            ? absl::StrCat(full, " is a link to a file that does not exist")
            : absl::StrCat(full, " is missing"));
  }
  if (!snapshot.listed.has_value()) return absl::OkStatus();
  const uint64_t expected = snapshot.listed->at(path);
  if (size == expected) return absl::OkStatus();
  return HalfDownload(
      kind,
      id,
      absl::StrCat(
          full, " has ", size, " bytes, but the hub's file has ", expected));
}

absl::Status HalfDownload(HubKind kind,
                          const HubId& id,
                          absl::string_view what) {
  return WithExitCode(
      absl::DataLossError(absl::StrCat(id.ToString(),
                                       " is only partly in the cache: ",
                                       what,
                                       "; finish the download with: ",
                                       FetchCommand(kind, id))),
      ExitCode::kData);
}

}  // namespace dapd
