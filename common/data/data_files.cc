#include "common/data/data_files.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
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
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"
#include "common/hub/hub_cache.h"
#include "common/hub/hub_id.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::string>;

constexpr size_t kMaxFiles = 100000;
constexpr size_t kMaxNamed = 6;  // in a message

enum class Format { kNone, kParquet, kJsonLines, kJson };

Format FormatOf(absl::string_view name) {
  if (absl::EndsWith(name, ".parquet")) return Format::kParquet;
  absl::ConsumeSuffix(&name, ".gz");
  if (absl::EndsWith(name, ".jsonl")) return Format::kJsonLines;
  return absl::EndsWith(name, ".json") ? Format::kJson : Format::kNone;
}

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

// Every file below `folder` that may hold rows, by its path from there.
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
    if (FormatOf(name) == Format::kNone || entry->is_directory(ignored)) {
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

// "test" or "validation" if the path has that word, as data sets on the hub
// name their splits ("data/test-00000-of-00002.parquet"), "held_out" as `dapd
// problems` names its own; everything else is "train".
std::string SplitOf(const std::string& path) {
  static const auto& splits =
      *new std::map<std::string, std::string>{{"test", "test"},
                                              {"testing", "test"},
                                              {"eval", "test"},
                                              {"evaluation", "test"},
                                              {"validation", "validation"},
                                              {"valid", "validation"},
                                              {"val", "validation"},
                                              {"dev", "validation"},
                                              {"held", "held_out"},
                                              {"heldout", "held_out"}};
  for (const absl::string_view word :
       absl::StrSplit(path, absl::ByAnyChar("/._- "))) {
    const auto found = splits.find(absl::AsciiStrToLower(word));
    if (found != splits.end()) return found->second;
  }
  return "train";
}

// One format, and nothing that is there to describe the others.
absl::StatusOr<Files> OfOneFormat(const std::string& where, Files files) {
  std::map<Format, Files> by_format;
  for (std::string& file : files) {
    by_format[FormatOf(file)].push_back(std::move(file));
  }
  if (by_format.size() > 1) by_format.erase(Format::kJson);
  if (by_format.size() == 1) return std::move(by_format.begin()->second);
  if (by_format.empty()) {
    return NoData(absl::StrCat(
        where, " holds no .parquet, .jsonl or .json file (nor one with .gz)"));
  }
  return DataError(absl::StrCat(where,
                                " holds Parquet and JSON Lines (",
                                by_format[Format::kParquet].front(),
                                ", ",
                                by_format[Format::kJsonLines].front(),
                                "); choose with a glob"));
}

absl::Status CheckOneSplit(const std::string& where, const Files& files) {
  std::map<std::string, Files> splits;
  for (const std::string& file : files) splits[SplitOf(file)].push_back(file);
  if (splits.size() < 2) return absl::OkStatus();
  Files firsts;
  for (const auto& [split, of_split] : splits) {
    firsts.push_back(absl::StrCat(split, ": ", of_split.front()));
  }
  return DataError(absl::StrCat(where,
                                " holds several splits (",
                                absl::StrJoin(firsts, ", "),
                                "); choose with a glob"));
}

// The first shard that its siblings' names promise and that is not there.
std::optional<std::string> MissingShard(const Files& files) {
  const std::set<std::string> present(files.begin(), files.end());
  std::set<std::pair<std::string, std::string>> complete;  // what is around NNN
  for (const std::string& file : files) {
    // data/train-00003-of-00010.parquet
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

absl::StatusOr<Files> FilesOfFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(Files files, ListDataFiles(folder));
  ASSIGN_OR_RETURN(files, OfOneFormat(folder, std::move(files)));
  RETURN_IF_ERROR(CheckOneSplit(folder, files));
  if (const auto missing = MissingShard(files); missing.has_value()) {
    return DataError(absl::StrCat(folder,
                                  " lacks the shard ",
                                  *missing,
                                  "; complete it, or choose with a glob"));
  }
  return Below(folder, files);
}

// No file where the glob matches none.
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
    if (FormatOf(file) == Format::kNone || fs::is_directory(file, error)) {
      return DataError(absl::StrCat(
          pattern,
          " matches ",
          file,
          ", which is not a .parquet, .jsonl or .json file; narrow the glob"));
    }
  }
  return files;
}

absl::StatusOr<Files> FilesOfSnapshot(const HubId& id,
                                      const std::string& pattern) {
  ASSIGN_OR_RETURN(const HubSnapshot snapshot,
                   FindSnapshot(HubKind::kDataset, id));
  // By the hub's list where there is one: what was not downloaded yet is then
  // known by name.
  Files files;
  if (snapshot.listed.has_value()) {
    for (const auto& [file, size] : *snapshot.listed) {
      if (FormatOf(file) != Format::kNone && !absl::StartsWith(file, ".")) {
        files.push_back(file);
      }
    }
  } else {
    ASSIGN_OR_RETURN(files, ListDataFiles(snapshot.folder));
  }
  const std::string where = id.ToString();
  if (pattern.empty()) {
    ASSIGN_OR_RETURN(files, OfOneFormat(where, std::move(files)));
    RETURN_IF_ERROR(CheckOneSplit(where, files));
  } else {
    const Files all = std::exchange(files, {});
    for (const std::string& file : all) {
      if (::fnmatch(pattern.c_str(), file.c_str(), FNM_PATHNAME) == 0) {
        files.push_back(file);
      }
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

}  // namespace

absl::StatusOr<Files> FindDataFiles(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return FilesOfFolder(path);
  if (fs::exists(path, error)) {
    if (FormatOf(path) != Format::kNone) return Files{path};
    return DataError(absl::StrCat(path,
                                  ": the name must end in .jsonl, .json, "
                                  ".jsonl.gz, .json.gz or .parquet"));
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
  if (id.has_value() && (has_pattern || FormatOf(path) == Format::kNone)) {
    auto files =
        FilesOfSnapshot(*id, has_pattern ? path.substr(colon + 1) : "");
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

}  // namespace dapd
