#include "common/data/data_files.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"
#include "common/data/data_format.h"
#include "common/hub/hub_cache.h"
#include "common/hub/hub_id.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::string>;

constexpr size_t kMaxFiles = 100000;
constexpr size_t kMaxNamed = 6;  // in a message

constexpr uint64_t kMaxCardBytes = uint64_t{64} << 20;

std::string Some(const Files& files) {
  Files some(files.begin(), files.begin() + std::min(files.size(), kMaxNamed));
  if (files.size() > kMaxNamed) {
    some.push_back(absl::StrCat("and ", files.size() - kMaxNamed, " more"));
  }
  return absl::StrJoin(some, ", ");
}

absl::Status NoData(const std::string& message) {
  return WithExitCode(absl::NotFoundError(message), ExitCode::kData);
}

// Returns the path, relative to `folder`, of every file below it that may hold
// rows.
absl::StatusOr<Files> ListDataFiles(const std::string& folder) {
  Files files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (absl::StartsWith(name, ".")) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (DataFormatOf(name) == DataFormat::kNone ||
        entry->is_directory(ignored)) {
      continue;
    }
    files.push_back(entry->path().lexically_relative(folder));
    if (files.size() > kMaxFiles) {
      return DataError(
          absl::StrCat(folder, " holds more than ", kMaxFiles, " data files"));
    }
  }
  if (error) {
    return WithExitCode(FileError("list", folder, error.value()),
                        ExitCode::kData);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the first missing shard: the names of other shards promise it.
std::optional<std::string> MissingShard(const Files& files) {
  const std::set<std::string> present(files.begin(), files.end());
  std::set<std::pair<std::string, std::string>> complete;  // the parts of the
                                                           // name before and
                                                           // behind the shard's
                                                           // number
  for (const std::string& file : files) {
    // Example: data/train-00003-of-00010.parquet
    const size_t of = file.rfind("-of-");
    if (of == std::string::npos) continue;
    const size_t dash = file.rfind('-', of - 1);
    const size_t dot = file.find('.', of);
    int64_t count = 0;
    if (of == 0 || dash == std::string::npos || dot == std::string::npos ||
        !absl::SimpleAtoi(file.substr(of + 4, dot - of - 4), &count) ||
        count > static_cast<int64_t>(kMaxFiles)) {
      continue;
    }
    const std::string number = file.substr(dash + 1, of - dash - 1);
    if (number.empty() ||
        !std::all_of(number.begin(), number.end(), [](char c) {
          return absl::ascii_isdigit(static_cast<unsigned char>(c));
        })) {
      continue;
    }
    const std::string front = file.substr(0, dash + 1);
    const std::string back = file.substr(of);
    if (!complete.emplace(front, back).second) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::string digits = absl::StrCat(i);
      if (digits.size() < number.size()) {
        digits.insert(0, number.size() - digits.size(), '0');
      }
      const std::string sibling = absl::StrCat(front, digits, back);
      if (!present.contains(sibling)) return sibling;
    }
  }
  return std::nullopt;
}

Files Below(const std::string& folder, const Files& files) {
  Files paths;
  for (const std::string& file : files) paths.push_back(JoinPath(folder, file));
  return paths;
}

absl::StatusOr<std::optional<std::string>> ReadIfThere(
    const std::string& path) {
  if (!FileExists(path)) return std::nullopt;
  auto text = ReadFile(path, kMaxCardBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  return *std::move(text);
}

absl::StatusOr<Files> FilesOfDirectory(const std::string& path,
                                       const DataChoice& choice,
                                       SplitRule rule) {
  DataFolder folder = {.path = path, .read = [&](const std::string& file) {
                         return ReadIfThere(JoinPath(path, file));
                       }};
  ASSIGN_OR_RETURN(folder.files, ListDataFiles(path));
  ASSIGN_OR_RETURN(const Files files, FilesOfFolder(folder, choice, rule));
  if (const auto missing = MissingShard(files); missing.has_value()) {
    return DataError(absl::StrCat(path,
                                  " lacks the shard ",
                                  *missing,
                                  "; complete it, or choose with a glob"));
  }
  return Below(path, files);
}

// Returns no file if the glob matches nothing.
absl::StatusOr<Files> FilesOfGlob(const std::string& pattern) {
  glob_t found = {};
  const absl::Cleanup free = [&found] { ::globfree(&found); };
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (code == GLOB_NOMATCH) return Files();
  if (code != 0) {
    return DataError(absl::StrCat("cannot list ", pattern));
  }
  Files files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::error_code error;
    if (!IsReadable(DataFormatOf(file)) || fs::is_directory(file, error)) {
      return DataError(absl::StrCat(pattern,
                                    " matches ",
                                    file,
                                    ", which is not a data file (",
                                    WhyNotRead(file),
                                    "); narrow the glob"));
    }
  }
  return files;
}

absl::StatusOr<Files> FilesOfSnapshot(const HubId& id,
                                      const std::string& pattern,
                                      const DataChoice& choice,
                                      SplitRule rule) {
  ASSIGN_OR_RETURN(const HubSnapshot snapshot,
                   FindSnapshot(HubKind::kDataset, id));
  // The hub's list of files, where it is known, also has files that are not
  // downloaded yet.
  Files files;
  if (snapshot.listed.has_value()) {
    for (const auto& [file, size] : *snapshot.listed) {
      if (DataFormatOf(file) != DataFormat::kNone &&
          !absl::StartsWith(file, ".")) {
        files.push_back(file);
      }
    }
  } else {
    ASSIGN_OR_RETURN(files, ListDataFiles(snapshot.folder));
  }
  const std::string where = id.ToString();
  if (pattern.empty()) {
    // A card that is listed but not downloaded may describe configurations.
    const auto read = [&](const std::string& file)
        -> absl::StatusOr<std::optional<std::string>> {
      const std::string path = JoinPath(snapshot.folder, file);
      if (snapshot.listed.has_value()) {
        RETURN_IF_ERROR(CheckFile(HubKind::kDataset, id, snapshot, file));
      }
      return ReadIfThere(path);
    };
    ASSIGN_OR_RETURN(
        files,
        FilesOfFolder({.path = where, .files = std::move(files), .read = read},
                      choice,
                      rule));
  } else {
    const Files all = std::exchange(files, {});
    for (const std::string& file : all) {
      if (::fnmatch(pattern.c_str(), file.c_str(), FNM_PATHNAME) != 0) continue;
      if (!IsReadable(DataFormatOf(file))) {
        return DataError(
            absl::StrCat(where, ": ", file, ": ", WhyNotRead(file)));
      }
      files.push_back(file);
    }
    if (files.empty()) {
      return NoData(absl::StrCat(
          where, " has no data file ", pattern, "; available: ", Some(all)));
    }
  }
  for (const std::string& file : files) {
    RETURN_IF_ERROR(CheckFile(HubKind::kDataset, id, snapshot, file));
  }
  if (!snapshot.listed.has_value()) {
    if (const auto missing = MissingShard(files);
        pattern.empty() && missing.has_value()) {
      return HalfDownload(
          HubKind::kDataset, id, absl::StrCat(*missing, " is missing"));
    }
    if (!snapshot.unfinished.empty()) {
      return HalfDownload(HubKind::kDataset,
                          id,
                          absl::StrCat(snapshot.unfinished,
                                       " was not downloaded completely (remove "
                                       "it if nothing needs it)"));
    }
  }
  return Below(snapshot.folder, files);
}

// Splits folder#CONFIGURATION:SPLIT. Returns nothing if `path` has no such end,
// or if there is no data set in front of the #: the # then belongs to a file's
// name.
std::optional<std::pair<std::string, DataChoice>> SplitOffChoice(
    const std::string& path) {
  const size_t hash = path.rfind('#');
  if (hash == std::string::npos || hash == 0) return std::nullopt;
  const std::string asked = path.substr(hash + 1);
  const size_t colon = asked.find(':');
  DataChoice choice = {.configuration = asked.substr(0, colon)};
  if (colon != std::string::npos) choice.split = asked.substr(colon + 1);
  std::string data_set = path.substr(0, hash);
  std::error_code error;
  const bool is_one =
      fs::exists(data_set, error) ||
      ParseHubId(absl::string_view(data_set).substr(0, data_set.find(':')))
          .has_value();
  if (choice.IsEmpty() || !is_one) return std::nullopt;
  return std::pair(std::move(data_set), std::move(choice));
}

absl::StatusOr<Files> FilesOfPath(const std::string& path,
                                  const DataChoice& choice,
                                  SplitRule rule) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return FilesOfDirectory(path, choice, rule);
  }
  const std::string no_choice = absl::StrCat(
      "; only a folder or an id without a glob has "
      "configurations and splits to choose with #");
  if (fs::exists(path, error)) {
    if (!choice.IsEmpty()) {
      return DataError(absl::StrCat(path, " is a file", no_choice));
    }
    if (IsReadable(DataFormatOf(path))) return Files{path};
    return DataError(absl::StrCat(path, ": ", WhyNotRead(path)));
  }
  RETURN_IF_ERROR(CheckMayLookFor(path, error));
  const std::string none = absl::StrCat("there is no data file ", path);
  if (absl::StrContains(path, "://")) {
    return NoData(absl::StrCat(none,
                               "; URLs are not read: copy the file here, or "
                               "give a data set's id on the hub (org/name)"));
  }
  const size_t colon = path.find(':');
  const auto id = ParseHubId(absl::string_view(path).substr(0, colon));
  const bool has_pattern = colon != std::string::npos;
  if (id.has_value() &&
      (has_pattern || DataFormatOf(path) == DataFormat::kNone)) {
    if (has_pattern && !choice.IsEmpty()) {
      return DataError(absl::StrCat(path, " is a glob", no_choice));
    }
    auto files = FilesOfSnapshot(
        *id, has_pattern ? path.substr(colon + 1) : "", choice, rule);
    if (!absl::IsNotFound(files.status())) return files;
    return NoData(
        absl::StrCat(none, ", and ", std::string(files.status().message())));
  }
  if (path.find_first_of("*?[") != std::string::npos) {
    ASSIGN_OR_RETURN(Files files, FilesOfGlob(path));
    if (!files.empty()) return files;
    return NoData(absl::StrCat(none, ", and nothing matches it as a glob"));
  }
  return NoData(none);
}

}  // namespace

absl::StatusOr<Files> FindDataFiles(const std::string& path, SplitRule rule) {
  const auto chosen = SplitOffChoice(path);
  std::error_code error;
  // The name of a file may contain a #, too.
  if (chosen.has_value() && !fs::exists(path, error)) {
    return FilesOfPath(chosen->first, chosen->second, rule);
  }
  return FilesOfPath(path, {}, rule);
}

}  // namespace dapd
