#include "common/charts/run_history.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/base/json.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWithExtremes[] = {"loss", "gradient_norm"};

Json Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.7g", value);
  return std::strtod(text, nullptr);
}

}  // namespace

void RunHistory::Cell::Merge(const Cell& other) {
  if (other.count == 0) return;
  low = count == 0 ? other.low : std::min(low, other.low);
  high = count == 0 ? other.high : std::max(high, other.high);
  sum += other.sum;
  count += other.count;
}

void RunHistory::Point::Merge(const Point& other) {
  last_step = other.last_step;
  if (cells.size() < other.cells.size()) cells.resize(other.cells.size());
  for (size_t i = 0; i < other.cells.size(); ++i) {
    cells[i].Merge(other.cells[i]);
  }
}

void RunHistory::Collect(const Json& value,
                         const std::string& name,
                         Point& point) {
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) {
      if (name.empty() && key == "step") continue;
      Collect(child, name.empty() ? key : name + "/" + key, point);
    }
    return;
  }
  if (!value.is_number()) return;
  const auto [found, is_new] = column_index_.try_emplace(name, columns_.size());
  if (is_new) columns_.push_back(name);
  point.cells.resize(std::max(point.cells.size(), columns_.size()));
  const double number = value.get<double>();
  point.cells[found->second] = {number, 1, number, number};
}

void RunHistory::Append(Point point) {
  if (!points_.empty() &&
      Index(points_.back().last_step) == Index(point.last_step)) {
    points_.back().Merge(point);
  } else {
    points_.push_back(std::move(point));
  }
}

void RunHistory::Add(const Json& line) {
  Point point;
  point.last_step = line.at("step").get<int64_t>();
  MutexLock lock(&mutex_);
  if (!points_.empty() && point.last_step <= points_.back().last_step) return;
  Collect(line, "", point);
  Append(std::move(point));
  while (points_.size() > max_points_) {
    stride_ *= 2;
    for (Point& old : std::exchange(points_, {})) Append(std::move(old));
  }
}

Json RunHistory::ToJson() const {
  MutexLock lock(&mutex_);
  Json steps = Json::array();
  for (const Point& point : points_) steps.push_back(point.last_step);
  const auto column = [&](size_t index, const auto& read) {
    Json values = Json::array();
    for (const Point& point : points_) {
      const Cell cell =
          index < point.cells.size() ? point.cells[index] : Cell();
      values.push_back(cell.count == 0 ? Json() : Rounded(read(cell)));
    }
    return values;
  };
  Json series = Json::object();
  for (size_t i = 0; i < columns_.size(); ++i) {
    series[columns_[i]] = column(i, [](const Cell& cell) {
      return cell.sum / static_cast<double>(cell.count);
    });
  }
  Json low = Json::object();
  Json high = Json::object();
  for (const char* name : kWithExtremes) {
    const auto found = column_index_.find(name);
    if (stride_ == 1 || found == column_index_.end()) continue;
    low[name] = column(found->second, [](const Cell& c) { return c.low; });
    high[name] = column(found->second, [](const Cell& c) { return c.high; });
  }
  return {{"stride", stride_},
          {"last_step", points_.empty() ? 0 : points_.back().last_step},
          {"steps", std::move(steps)},
          {"series", std::move(series)},
          {"low", std::move(low)},
          {"high", std::move(high)}};
}

}  // namespace dapd
