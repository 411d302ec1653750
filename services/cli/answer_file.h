// AnswerFile keeps the answers of an evaluation on disk and writes each as soon
// as it has ended, so that a killed call loses only unfinished answers.
//
//   F                 JSON Lines, answer_record.h; in the order in which they
//                     ended, in the order of the data once all are there
//   F.manifest.json   the data, model and settings of the answers
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"
#include "services/cli/answer_record.h"

namespace dapd {

// Not thread-safe. Held by one process at a time.
class AnswerFile {
 public:
  // Begins `path`, or resumes the file of an earlier call with the same
  // `settings` (an object of plain values): calls `visit` with each of its
  // answers. An unfinished last line is cut off.
  //
  // Fails with exit code kData, without a change, for a file of other settings
  // (each difference is named), without a manifest, or damaged. Returns
  // UNAVAILABLE if another process writes to it.
  static absl::StatusOr<AnswerFile> Open(
      const std::string& path,
      const nlohmann::ordered_json& settings,
      const std::function<absl::Status(const AnswerRecord&)>& visit);
  AnswerFile(AnswerFile&& other) noexcept;
  AnswerFile& operator=(AnswerFile&&) = delete;
  ~AnswerFile();

  // Appends an answer, which is on disk before this returns.
  absl::Status Append(const AnswerRecord& record);

  // Puts the file in the order of the data.
  absl::Status Sort();

 private:
  struct Line {
    int64_t index = 0;
    int64_t sample = 0;
    uint64_t begin = 0;  // bytes of the file
    uint64_t size = 0;   // its newline included
  };
  AnswerFile(AppendFile file, int lock);
  absl::Status ReadLines(
      const std::function<absl::Status(const AnswerRecord&)>& visit);

  AppendFile file_;
  int lock_ = -1;
  std::vector<Line> lines_;
};

}  // namespace dapd
