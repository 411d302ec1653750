#include "services/trainer/copy/run_cut.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/safe_name.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr char kCuts[] = ".copying";
constexpr char kEvents[] = "events.out.tfevents.";

// Returns the paths relative to the folder, sorted; without temporary and
// hidden files.
absl::StatusOr<std::vector<std::string>> FilesUnder(const std::string& folder,
                                                    const std::string& under) {
  std::vector<std::string> names;
  const std::string place = JoinPath(folder, under);
  if (!FileExists(place)) return names;
  ASSIGN_OR_RETURN(const std::vector<std::string> found, ListFilesBelow(place));
  for (const std::string& path : found) {
    const std::string name = fs::path(path).filename();
    if (!IsSafeName(name) || absl::StrContains(name, ".tmp")) continue;
    names.push_back(JoinPath(under, path));
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> EventFiles(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  std::erase_if(names, [](const std::string& name) {
    return !absl::StartsWith(name, kEvents) || !IsSafeName(name);
  });
  return names;
}

absl::Status Link(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  const int reason = errno;
  if (reason == ENOENT || reason == ENOSPC || reason == EDQUOT) {
    return FileError("link", from, reason);
  }
  // The file system does not support links, or the file has too many.
  std::error_code error;
  if (fs::copy_file(from, to, error)) return absl::OkStatus();
  return FileError(absl::StrCat("copy ", from, " to"), to, error.value());
}

// Adds the folder's files to a cut.
class Cutter {
 public:
  Cutter(const std::string& folder, RunCut* cut) : folder_(folder), cut_(cut) {}

  // Adds files that may be replaced or removed.
  absl::Status AddLinked(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const std::string link = JoinPath(cut_->links, name);
      RETURN_IF_ERROR(MakeDirectories(fs::path(link).parent_path()));
      RETURN_IF_ERROR(Link(JoinPath(folder_, name), link));
      RETURN_IF_ERROR(Add({.name = name, .path = link, .is_linked = true}));
    }
    return absl::OkStatus();
  }
  // Adds files that stay or only grow; leaves out missing ones.
  absl::Status AddInPlace(const std::vector<std::string>& names, bool grows) {
    for (const std::string& name : names) {
      const std::string path = JoinPath(folder_, name);
      if (!FileExists(path)) continue;
      RETURN_IF_ERROR(Add({.name = name, .path = path, .grows = grows}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Add(CutFile file) {
    struct stat info = {};
    if (::stat(file.path.c_str(), &info) != 0) {
      return FileError("stat", file.path, errno);
    }
    file.bytes = info.st_size;
    cut_->files.push_back(std::move(file));
    return absl::OkStatus();
  }

  const std::string folder_;
  RunCut* const cut_;
};

std::vector<std::string> Existing(const std::string& folder,
                                  std::vector<std::string> names) {
  std::erase_if(names, [&](const std::string& name) {
    return !FileExists(JoinPath(folder, name));
  });
  return names;
}

// Leaves out samples of later steps, which are written again.
absl::StatusOr<std::vector<std::string>> SamplesUpTo(const std::string& folder,
                                                     int64_t step) {
  ASSIGN_OR_RETURN(std::vector<std::string> names,
                   FilesUnder(folder, "samples"));
  // Names are zero-padded, so a name with more digits is longer.
  const std::string last = absl::StrFormat("samples/step-%06d.jsonl", step);
  std::erase_if(names, [&](const std::string& name) {
    return name.size() != last.size() ? name.size() > last.size() : name > last;
  });
  return names;
}

}  // namespace

absl::StatusOr<RunCut> CutRun(const std::string& folder, int64_t step) {
  RunCut cut{.step = step};
  const std::string checkpoint = absl::StrFormat("checkpoints/step-%06d", step);
  if (!FileExists(JoinPath(folder, checkpoint + "/manifest.json"))) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", JoinPath(folder, checkpoint)));
  }
  int64_t number = 0;
  do {
    cut.links = JoinPath(
        folder, absl::StrFormat("%s/step-%06d-%d", kCuts, step, number++));
  } while (FileExists(cut.links));
  RETURN_IF_ERROR(MakeDirectories(cut.links));
  absl::Cleanup drop = [&cut] { DropCut(cut); };
  Cutter cutter(folder, &cut);
  ASSIGN_OR_RETURN(const auto weights, FilesUnder(folder, checkpoint));
  RETURN_IF_ERROR(cutter.AddLinked(weights));
  RETURN_IF_ERROR(cutter.AddLinked(Existing(folder,
                                            {"config.yaml",
                                             "copy.json",
                                             "identity.json",
                                             "summary.json",
                                             "report.html"})));
  for (const char* name : {"evaluation", "adapter", "adapter-best"}) {
    ASSIGN_OR_RETURN(const auto files, FilesUnder(folder, name));
    RETURN_IF_ERROR(cutter.AddLinked(files));
  }
  RETURN_IF_ERROR(cutter.AddInPlace(
      {"ledger.jsonl", "metrics.jsonl", "answers.jsonl"}, /*grows=*/true));
  ASSIGN_OR_RETURN(const auto events, EventFiles(folder));
  RETURN_IF_ERROR(cutter.AddInPlace(events, /*grows=*/true));
  ASSIGN_OR_RETURN(const auto samples, SamplesUpTo(folder, step));
  RETURN_IF_ERROR(cutter.AddInPlace(samples, /*grows=*/false));
  std::move(drop).Cancel();
  return cut;
}

bool IsGone(const RunCut& cut) {
  return std::ranges::any_of(cut.files, [](const CutFile& file) {
    return file.is_linked && !FileExists(file.path);
  });
}

void DropCut(const RunCut& cut) {
  std::error_code error;
  if (!cut.links.empty()) fs::remove_all(cut.links, error);
}

void DropAllCuts(const std::string& folder) {
  std::error_code error;
  fs::remove_all(JoinPath(folder, kCuts), error);
}

}  // namespace dapd
