// MetricsRegistry holds the Prometheus metrics of a process: a prometheus-cpp
// registry with plain functions, and the endpoint that serves it.
//
// Names start with "dapd_", counters end in "_total", units are seconds and
// bytes; `promtool check metrics` passes. Label values must come from small
// fixed sets. Every series has the label `run`, by which dashboards and rules
// distinguish runs that share a Prometheus.
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

// Handles are cheap to copy, valid as long as their registry, and thread-safe.
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

// Thread-safe. A second request for the same name and labels returns the same
// metric.
class MetricsRegistry {
 public:
  // Adds dapd_build_info{service, version, flavour, ...} and
  // process_*{service}. `run` is the name of the run; if empty, there is no
  // such label. `build` has further labels of dapd_build_info, for the driver
  // and the GPUs (GpuLabels); `constant` has further labels of every series.
  explicit MetricsRegistry(const std::string& service,
                           const std::string& run = "",
                           const MetricLabels& build = {},
                           const MetricLabels& constant = {});
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

  // `refresh` is called at the start of every Expose, for values that are
  // easier to read on request than to follow. Must be called before Serve.
  // `refresh` must be quick, and what it uses must outlive the registry.
  void OnExpose(std::function<void()> refresh);

  // Returns the metrics in the text exposition format.
  std::string Expose() const;

  // Serves /metrics, /healthz and `pages` until destruction; serves nothing if
  // `options.listen` is empty. Returns the port, or 0 without one. Returns
  // UNAVAILABLE if the address is in use. What the pages use must outlive the
  // registry.
  absl::StatusOr<int> Serve(HttpOptions options,
                            std::map<std::string, HttpPage> pages = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns 1-2-5 steps from `low` to at least `high`.
std::vector<double> StepBuckets(double low, double high);

}  // namespace dapd
