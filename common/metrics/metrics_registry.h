// The Prometheus metrics of a process: a prometheus-cpp registry with plain
// functions, and the endpoint that serves it.
//
// Names start with "dapd_", counters end in "_total", units are seconds and
// bytes; `promtool check metrics` passes. Label values must come from small
// fixed sets. Every series carries the label `run`, by which dashboards and
// rules tell runs apart that share a Prometheus.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/metrics/http_responder.h"

namespace dapd {

using MetricLabels = std::map<std::string, std::string>;

// Handles: cheap to copy, valid as long as their registry, thread-safe.
class Counter {
 public:
  explicit Counter(void* counter) : counter_(counter) {}
  void Add(double amount = 1.0) const;

 private:
  void* counter_;
};

class Gauge {
 public:
  explicit Gauge(void* gauge) : gauge_(gauge) {}
  void Set(double value) const;
  void Add(double amount) const;

 private:
  void* gauge_;
};

class Histogram {
 public:
  explicit Histogram(void* histogram) : histogram_(histogram) {}
  void Observe(double value) const;

 private:
  void* histogram_;
};

// Thread-safe. Asking twice for the same name and labels gives the same metric.
class MetricsRegistry {
 public:
  // Adds dapd_build_info{service, version, flavour, ...} and
  // process_*{service}. `run`: the name of the run; empty: no such label.
  // `build`: further labels of dapd_build_info, of the driver and the GPUs
  // (GpuLabels).
  explicit MetricsRegistry(const std::string& service,
                           const std::string& run = "",
                           const MetricLabels& build = {});
  ~MetricsRegistry();

  Counter AddCounter(const std::string& name,
                     const std::string& help,
                     const MetricLabels& labels = {});
  Gauge AddGauge(const std::string& name,
                 const std::string& help,
                 const MetricLabels& labels = {});
  Histogram AddHistogram(const std::string& name,
                         const std::string& help,
                         const std::vector<double>& buckets,
                         const MetricLabels& labels = {});

  // `refresh` is called at the start of every Expose, for what is easier looked
  // up when asked than followed. Before Serve only; what it uses must outlive
  // the registry, and it must be quick.
  void OnExpose(std::function<void()> refresh);

  // The text exposition format.
  std::string Expose() const;

  // Serves /metrics, /healthz and `pages` until destruction; nothing if
  // `options.listen` is empty. Returns the port, 0 for none. UNAVAILABLE if the
  // address is in use. What the pages use must outlive the registry.
  absl::StatusOr<int> Serve(HttpOptions options,
                            std::map<std::string, HttpPage> pages = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 1-2-5 steps from `low` to at least `high`.
std::vector<double> StepBuckets(double low, double high);

}  // namespace dapd
