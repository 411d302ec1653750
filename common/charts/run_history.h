// RunHistory holds metrics.jsonl by columns and in bounded memory, for charts.
//
// Each of the first 2,000 steps is a point. Each time that there would be more
// points, two neighbours become one point that stands for twice the steps. A
// point is therefore the mean over `stride` steps, a power of two. For the loss
// and the gradient norm, whose peaks matter, a point also has the lowest and
// the highest value.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/base/mutex.h"

namespace dapd {

// Thread-safe.
class RunHistory {
 public:
  static constexpr size_t kMaxPoints = 2000;

  explicit RunHistory(size_t max_points = kMaxPoints)
      : max_points_(max_points) {}

  // `line` is an object as in metrics.jsonl, with a "step" from 1 on. Numbers
  // at any depth become columns: {"terms": {"a": {"value": 1}}} is
  // "terms/a/value". A step that is not greater than the last one is ignored.
  void Add(const nlohmann::ordered_json& line);

  // Returns
  // {"stride", "last_step", "steps": [the last step of each point],
  //  "series": {column: [a number, or null where a line lacked it]},
  //  "low": {"loss", "gradient_norm"}, "high": {"loss", "gradient_norm"}}
  // Numbers have 7 significant digits. "low" and "high" are empty while each
  // step has a point.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Cell {
    double sum = 0.0;
    int64_t count = 0;
    double low = 0.0;
    double high = 0.0;
    void Merge(const Cell& other);
  };
  struct Point {
    int64_t last_step = 0;
    std::vector<Cell> cells;  // by column; the newest columns may be missing
    void Merge(const Point& other);
  };

  void Collect(const nlohmann::ordered_json& value,
               const std::string& name,
               Point& point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(Point point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the index of the point of `step`; points with the same index are
  // merged.
  int64_t Index(int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (step - 1) / stride_;
  }

  const size_t max_points_;
  mutable Mutex mutex_;
  int64_t stride_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::string> columns_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> column_index_ ABSL_GUARDED_BY(mutex_);
  std::vector<Point> points_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
