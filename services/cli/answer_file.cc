#include "services/cli/answer_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 20;

std::string ManifestPath(const std::string& path) {
  return path + ".manifest.json";
}

std::string HowToGoOn(const std::string& path) {
  return absl::StrCat("; choose another --output, or remove ",
                      path,
                      " and ",
                      ManifestPath(path));
}

// Checks that the answers in `path` belong to `settings`.
absl::Status CheckManifest(const std::string& path,
                           const nlohmann::ordered_json& settings) {
  const std::string manifest = ManifestPath(path);
  const auto text = ReadFile(manifest, kMaxManifestBytes);
  if (!text.ok()) {
    return DataError(absl::StrCat(path,
                                  " has no manifest of dapd eval beside it (",
                                  text.status().message(),
                                  ")",
                                  HowToGoOn(path)));
  }
  ASSIGN_OR_RETURN(const nlohmann::json found, ParseJson(*text, manifest));
  const nlohmann::json wanted = settings;
  if (found == wanted) return absl::OkStatus();
  std::vector<std::string> differences;
  for (const auto& [key, value] : wanted.items()) {
    const auto was = found.is_object() ? found.find(key) : found.end();
    if (was == found.end()) {
      differences.push_back(absl::StrCat(key, " is missing"));
    } else if (*was != value) {
      differences.push_back(
          absl::StrCat(key, " was ", was->dump(), ", now ", value.dump()));
    }
  }
  if (differences.empty()) differences.push_back("keys of another version");
  return DataError(absl::StrCat(path,
                                " holds answers of another evaluation: ",
                                absl::StrJoin(differences, "; "),
                                HowToGoOn(path)));
}

}  // namespace

AnswerFile::AnswerFile(AppendFile file, int lock)
    : file_(std::move(file)), lock_(lock) {}

AnswerFile::AnswerFile(AnswerFile&& other) noexcept
    : file_(std::move(other.file_)),
      lock_(std::exchange(other.lock_, -1)),
      lines_(std::move(other.lines_)) {}

AnswerFile::~AnswerFile() {
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<AnswerFile> AnswerFile::Open(
    const std::string& path,
    const nlohmann::ordered_json& settings,
    const std::function<absl::Status(const AnswerRecord&)>& visit) {
  std::error_code error;
  if (std::filesystem::exists(path, error) &&
      !std::filesystem::is_regular_file(path, error)) {
    return DataError(
        absl::StrCat(path,
                     " is not a file from which an unfinished evaluation could "
                     "be resumed; choose another --output, or none"));
  }
  const int lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return FileError("open", path, errno);
  absl::Cleanup unlock = [lock] { ::close(lock); };
  ASSIGN_OR_RETURN(const bool is_ours, TryLock(lock, path));
  if (!is_ours) {
    return absl::UnavailableError(
        absl::StrCat(path,
                     " is being written by another dapd eval; wait until that "
                     "has finished"));
  }
  // This runs under the lock, because it reads the file's size, which another
  // process may change.
  ASSIGN_OR_RETURN(AppendFile appended, AppendFile::Open(path));
  AnswerFile file(std::move(appended), lock);
  std::move(unlock).Cancel();
  if (file.file_.size() == 0) {
    RETURN_IF_ERROR(WriteFileAtomically(ManifestPath(path),
                                        absl::StrCat(settings.dump(2), "\n")));
    return file;
  }
  RETURN_IF_ERROR(CheckManifest(path, settings));
  RETURN_IF_ERROR(file.ReadLines(visit));
  return file;
}

absl::Status AnswerFile::ReadLines(
    const std::function<absl::Status(const AnswerRecord&)>& visit) {
  std::ifstream file(file_.path(), std::ios::binary);
  if (!file) return FileError("open", file_.path(), errno);
  uint64_t begin = 0;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    // The process was killed while it wrote this line.
    if (file.eof()) return file_.Truncate(begin);
    const std::string where = absl::StrCat(file_.path(), ":", number);
    ASSIGN_OR_RETURN(const nlohmann::json row, ParseJson(text, where));
    ASSIGN_OR_RETURN(const AnswerRecord record, ParseAnswerRecord(row, where));
    RETURN_IF_ERROR(visit(record));
    const uint64_t size = text.size() + 1;
    lines_.push_back({record.index, record.sample, begin, size});
    begin += size;
  }
  if (file.bad()) return FileError("read", file_.path(), errno);
  return absl::OkStatus();
}

absl::Status AnswerFile::Append(const AnswerRecord& record) {
  // A token may end inside a character, so bytes that are no UTF-8 are
  // replaced.
  const std::string line = absl::StrCat(
      ToJson(record).dump(
          -1, ' ', false, nlohmann::json::error_handler_t::replace),
      "\n");
  const uint64_t begin = file_.size();
  RETURN_IF_ERROR(file_.Append(line));
  lines_.push_back({record.index, record.sample, begin, line.size()});
  return absl::OkStatus();
}

absl::Status AnswerFile::Sort() {
  const auto before = [](const Line& a, const Line& b) {
    return std::tie(a.index, a.sample) < std::tie(b.index, b.sample);
  };
  if (std::is_sorted(lines_.begin(), lines_.end(), before)) {
    return absl::OkStatus();
  }
  std::sort(lines_.begin(), lines_.end(), before);
  std::ifstream from(file_.path(), std::ios::binary);
  ASSIGN_OR_RETURN(AtomicFileWriter to, AtomicFileWriter::Open(file_.path()));
  std::string text;
  for (const Line& line : lines_) {
    text.resize(line.size);
    from.seekg(static_cast<std::streamoff>(line.begin));
    from.read(text.data(), static_cast<std::streamsize>(line.size));
    if (!from) return FileError("read", file_.path(), errno);
    RETURN_IF_ERROR(to.Append(text));
  }
  return to.Commit();
}

}  // namespace dapd
