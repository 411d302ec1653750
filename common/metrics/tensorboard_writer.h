// Scalars for TensorBoard: an events.out.tfevents file of Event protobufs in
// TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Not thread-safe. Every call reaches the file before it returns.
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
  explicit TensorBoardWriter(int descriptor) : descriptor_(descriptor) {}
  absl::Status WriteRecord(const std::string& event);
  int descriptor_;
};

}  // namespace dapd
