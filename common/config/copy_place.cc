#include "common/config/copy_place.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/config/run_folder.h"

namespace dapd {
namespace {

// Returns the canonical name of a folder that may not exist yet.
std::filesystem::path TrueName(const std::string& folder) {
  std::error_code error;
  return std::filesystem::weakly_canonical(
      std::filesystem::absolute(folder, error), error);
}

bool IsRunFolder(const std::string& copy_to, const RunConfig& run) {
  return TrueName(JoinPath(copy_to, run.name)) == TrueName(FolderOf(run));
}

bool IsUrl(const std::string& url) {
  const size_t colon = url.find_first_of(":/");
  return colon != std::string::npos && url[colon] == ':';
}

}  // namespace

std::string StoreProblem(const std::string& url) {
  if (!IsUrl(url) || absl::StartsWith(url, "s3://") ||
      absl::StartsWith(url, "gs://")) {
    return "";
  }
  return absl::StrCat(
      "'",
      url,
      "' is neither a folder nor a URL of a store: those begin with s3:// or "
      "gs://, and a folder whose name has a colon is written ./NAME");
}

std::vector<std::string> FindCopyProblems(const Config& config) {
  const std::string& url = config.checkpoint.copy_to;
  std::vector<std::string> problems;
  if (url.empty()) return problems;
  const size_t scheme = url.find("://");
  const size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  const std::string place = url.substr(host, url.find('/', host) - host);
  if (scheme != std::string::npos && absl::StrContains(place, '@')) {
    problems.push_back(
        "checkpoint.copy_to: credentials do not belong in a URL, which is "
        "logged; give them in the environment");
  }
  // Otherwise a missing slash would copy a run into a folder of this machine.
  if (const std::string problem = StoreProblem(url); !problem.empty()) {
    problems.push_back(absl::StrCat("checkpoint.copy_to: ", problem));
  }
  if (url.find_first_of(" \t\r\n?#") != std::string::npos ||
      absl::StrContains(url, "::") || host >= url.size()) {
    problems.push_back(absl::StrCat(
        "checkpoint.copy_to: '",
        url,
        "' is neither a folder nor a URL such as s3://BUCKET/PATH: it must not "
        "contain blanks, ?, # or ::"));
  }
  if (!IsUrl(url) && IsRunFolder(url, config.run)) {
    problems.push_back(absl::StrCat(
        "checkpoint.copy_to: '",
        url,
        "' is run.output_dir, so that a run would be its own copy; name "
        "another folder"));
  }
  return problems;
}

}  // namespace dapd
