// Reads typed fields of one JSON object out of a model's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "common/base/json.h"

namespace dapd {

// Ten times the largest extent of a published model; products of such extents
// fit 63 bits.
inline constexpr int64_t kMaxExtent = int64_t{1} << 22;
// The most positions of a context or of a window.
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Keeps the first problem as its status; after a problem the readers return
// harmless values. A key whose value is null counts as absent. A key without a
// fallback is required.
class FieldReader {
 public:
  // `where` leads the status; `object` must outlive the reader.
  FieldReader(const nlohmann::json& object, std::string where);

  bool Has(const char* key) const;
  // Returns an integer from 1 to `max`.
  int64_t Integer(const char* key,
                  std::optional<int64_t> fallback,
                  int64_t max = kMaxExtent);
  // Returns a number above zero.
  double Positive(const char* key, std::optional<double> fallback);
  // Returns a number like Positive; zero counts as absent, as in Python code
  // that tests the truth of the value.
  double PositiveOrUnset(const char* key, double fallback);
  bool Boolean(const char* key, bool fallback);

  void Fail(const std::string& key, const std::string& problem);
  // Takes the first problem of a part that has its own reader.
  void Take(const absl::Status& part);

  const absl::Status& status() const { return status_; }
  const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json& object_;
  const std::string where_;
  absl::Status status_;
};

}  // namespace dapd
