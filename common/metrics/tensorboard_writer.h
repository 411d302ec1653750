// Scalars for TensorBoard: an events.out.tfevents file of Event protobufs in
// TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Not thread-safe. Every call reaches the file before it returns: the whole
// record or nothing of it. RESOURCE_EXHAUSTED for a full disk; later records
// can be read however often it was.
class TensorBoardWriter {
 public:
  // Creates `folder`/events.out.tfevents.<seconds>.<host>.<pid>.
  static absl::StatusOr<TensorBoardWriter> Create(const std::string& folder);
  TensorBoardWriter(TensorBoardWriter&& other) noexcept;
  TensorBoardWriter& operator=(TensorBoardWriter&&) = delete;
  ~TensorBoardWriter();

  // The run goes on at `step`: TensorBoard drops what older files of the folder
  // say about this step and later ones.
  absl::Status AddRestart(int64_t step);
  absl::Status AddScalar(const std::string& tag, int64_t step, double value);

 private:
  TensorBoardWriter(std::string path, int descriptor, uint64_t size);
  absl::Status WriteRecord(const std::string& event);
  // Cuts off what a failed call left of its record.
  absl::Status CutTornRecord();

  std::string path_;
  int descriptor_;
  uint64_t size_;      // of the whole records
  bool torn_ = false;  // more than size_ bytes may be in the file
};

}  // namespace dapd
