#include "common/rpc/pool/address_file.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/pool/address_resolver.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxBytes = 1 << 20;
// A worker costs the trainer a thread and a connection or more.
constexpr size_t kMaxWorkers = 1024;
// A DNS name has at most 253 characters.
constexpr size_t kMaxAddressBytes = 300;

absl::Status CheckAddress(absl::string_view address) {
  if (address.size() > kMaxAddressBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the line has ",
                     address.size(),
                     " characters; write one host:port per line"));
  }
  for (const char c : address) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", address, "' is not an address; write one host:port per line"));
    }
  }
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(std::string(address)));
  if (parsed.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", address, "' has port 0; write the worker's own"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAddressFile(
    const std::string& path, absl::string_view text) {
  std::vector<std::string> addresses;
  std::set<std::string> seen;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const absl::Status checked = CheckAddress(line);
    if (!checked.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": ", std::string(checked.message())));
    }
    if (!seen.emplace(line).second) continue;
    addresses.emplace_back(line);
    if (addresses.size() > kMaxWorkers) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ":",
                       number,
                       ": more than ",
                       kMaxWorkers,
                       " workers; remove those that are gone"));
    }
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> ReadAddressFile(
    const std::string& path) {
  // Opening a pipe would wait for a writer.
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a file; a list of workers was expected"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return ParseAddressFile(path, text);
}

absl::StatusOr<std::vector<std::string>> AddressFile::Read() {
  absl::StatusOr<std::vector<std::string>> now = ReadAddressFile(path_);
  if (now.ok()) {
    if (!was_good_ || *now != last_good_) {
      LogInfo(absl::StrCat(path_, " names ", now->size(), " workers"));
    }
    was_good_ = true;
    last_good_ = *now;
    last_problem_.clear();
    return now;
  }
  const std::string problem(now.status().message());
  if (problem != std::exchange(last_problem_, problem)) {
    LogWarning(absl::StrCat(
        problem,
        was_good_
            ? "; the workers it named before stay in use until it is fixed"
            : "; it will be read again until it names workers"));
  }
  if (!was_good_) return now;
  return last_good_;
}

}  // namespace dapd
