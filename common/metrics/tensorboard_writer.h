// Writes scalars for TensorBoard: an events.out.tfevents file of Event
// protobufs in TFRecord framing (length, masked CRC-32C of the length, data,
// masked CRC-32C of the data).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/append_file.h"

namespace dapd {

// Not thread-safe. Every call writes the whole record to the file, or nothing,
// before it returns. Returns RESOURCE_EXHAUSTED if the disk is full; later
// records stay readable even after several such errors.
class TensorBoardWriter {
 public:
  // Creates `folder`/events.out.tfevents.<seconds>.<host>.<pid>. The seconds
  // are the current time, or later than the seconds of all existing files of
  // this kind: TensorBoard reads the files in the order of their names.
  static absl::StatusOr<TensorBoardWriter> Create(const std::string& folder);

  // Starts a session (SessionLog.START) at `step`. It must be the first record
  // of every file: TensorBoard then drops the values of this step and later
  // ones from older files of the folder. TensorBoard does so only if it has
  // seen the start of a session in one of these files.
  absl::Status AddStart(int64_t step);
  absl::Status AddScalar(const std::string& tag, int64_t step, double value);

 private:
  explicit TensorBoardWriter(AppendFile file) : file_(std::move(file)) {}
  absl::Status WriteRecord(const std::string& event);

  AppendFile file_;
};

}  // namespace dapd
