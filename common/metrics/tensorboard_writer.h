// Scalars for TensorBoard: an events.out.tfevents file of Event protobufs in
// TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"

namespace dapd {

// Not thread-safe. Every call reaches the file before it returns: the whole
// record or nothing of it. RESOURCE_EXHAUSTED for a full disk; later records
// can be read however often it was.
class TensorBoardWriter {
 public:
  // Creates `folder`/events.out.tfevents.<seconds>.<host>.<pid>. The seconds
  // are the time's, or later than those of all such files that are there:
  // TensorBoard reads them in the order of their names.
  static absl::StatusOr<TensorBoardWriter> Create(const std::string& folder);

  // A session (SessionLog.START) that begins with `step`, the first record of
  // every file: TensorBoard drops what older files of the folder say about this
  // step and later ones. For that it has to have met the start of a session
  // before, in one of those.
  absl::Status AddStart(int64_t step);
  absl::Status AddScalar(const std::string& tag, int64_t step, double value);

 private:
  explicit TensorBoardWriter(AppendFile file) : file_(std::move(file)) {}
  absl::Status WriteRecord(const std::string& event);

  AppendFile file_;
};

}  // namespace dapd
