// Reads typed fields of one JSON object out of a model's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "common/base/json.h"

namespace dapd {

// Ten times the largest published model's; products of such extents fit 63
// bits.
inline constexpr int64_t kMaxExtent = int64_t{1} << 22;
// Positions of a context or of a window.
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

// Whatever is asked of it, the first problem stays as its status, and what is
// returned instead of a value that is wrong is harmless. A key whose value is
// null counts as absent. Without a fallback a key must be there.
class FieldReader {
 public:
  // `where` leads the status; `object` must outlive this.
  FieldReader(const nlohmann::json& object, std::string where);

  bool Has(const char* key) const;
  // From 1 to `max`.
  int64_t Integer(const char* key,
                  std::optional<int64_t> fallback,
                  int64_t max = kMaxExtent);
  // A number above zero.
  double Positive(const char* key, std::optional<double> fallback);
  // The same, but zero counts as absent, as it does where Python asks whether a
  // value is true.
  double PositiveOrUnset(const char* key, double fallback);
  bool Boolean(const char* key, bool fallback);

  void Fail(const std::string& key, const std::string& problem);
  // The first problem of a part that has a reader of its own.
  void Take(const absl::Status& part);

  const absl::Status& status() const { return status_; }
  const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json& object_;
  const std::string where_;
  absl::Status status_;
};

}  // namespace dapd
