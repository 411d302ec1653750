#include "common/metrics/metrics_registry.h"

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/flavour.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"

namespace dapd {
namespace {

double CpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) +
           1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0.0;
  double resident = 0.0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code error;
  double count = 0.0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

struct MetricsRegistry::State {
  MetricLabels constant;  // labels of every series
  prometheus::Registry registry;
  std::vector<std::function<void()>> refreshes;
  prometheus::Counter* cpu = nullptr;
  prometheus::Gauge* resident = nullptr;
  prometheus::Gauge* files = nullptr;
  std::unique_ptr<HttpResponder> responder;  // last: its thread uses the other
                                             // members
};

void Counter::Add(double amount) const {
  static_cast<prometheus::Counter*>(counter_)->Increment(amount);
}
void Gauge::Set(double value) const {
  static_cast<prometheus::Gauge*>(gauge_)->Set(value);
}
void Gauge::Add(double amount) const {
  static_cast<prometheus::Gauge*>(gauge_)->Increment(amount);
}
void Histogram::Observe(double value) const {
  static_cast<prometheus::Histogram*>(histogram_)->Observe(value);
}

MetricsRegistry::MetricsRegistry(const std::string& service,
                                 const std::string& run,
                                 const MetricLabels& build,
                                 const MetricLabels& constant)
    : state_(std::make_unique<State>()) {
  state_->constant = constant;
  if (!run.empty()) state_->constant["run"] = run;
  const MetricLabels labels = {{"service", service}};
  MetricLabels build_info = build;
  build_info["service"] = service;
  build_info["version"] = Version();
  build_info["flavour"] = Flavour();
  AddGauge("dapd_build_info",
           "Constant 1, labelled with the program's version and flavour and, "
           "where it can use GPUs, with its kernels for them, the driver and "
           "the GPUs that are visible.",
           build_info)
      .Set(1);
  AddGauge("process_start_time_seconds",
           "When the process started, in seconds since the Unix epoch.",
           labels)
      .Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  state_->cpu = &prometheus::BuildCounter()
                     .Name("process_cpu_seconds_total")
                     .Help("Processor time used, in seconds.")
                     .Labels(state_->constant)
                     .Register(state_->registry)
                     .Add(labels);
  state_->resident = &prometheus::BuildGauge()
                          .Name("process_resident_memory_bytes")
                          .Help("Resident memory in bytes.")
                          .Labels(state_->constant)
                          .Register(state_->registry)
                          .Add(labels);
  state_->files = &prometheus::BuildGauge()
                       .Name("process_open_fds")
                       .Help("Number of open file descriptors.")
                       .Labels(state_->constant)
                       .Register(state_->registry)
                       .Add(labels);
}

MetricsRegistry::~MetricsRegistry() = default;

Counter MetricsRegistry::AddCounter(const std::string& name,
                                    const std::string& help,
                                    const MetricLabels& labels) {
  return Counter(&prometheus::BuildCounter()
                      .Name(name)
                      .Help(help)
                      .Labels(state_->constant)
                      .Register(state_->registry)
                      .Add(labels));
}

Gauge MetricsRegistry::AddGauge(const std::string& name,
                                const std::string& help,
                                const MetricLabels& labels) {
  return Gauge(&prometheus::BuildGauge()
                    .Name(name)
                    .Help(help)
                    .Labels(state_->constant)
                    .Register(state_->registry)
                    .Add(labels));
}

Histogram MetricsRegistry::AddHistogram(const std::string& name,
                                        const std::string& help,
                                        const std::vector<double>& buckets,
                                        const MetricLabels& labels) {
  return Histogram(&prometheus::BuildHistogram()
                        .Name(name)
                        .Help(help)
                        .Labels(state_->constant)
                        .Register(state_->registry)
                        .Add(labels, buckets));
}

void MetricsRegistry::OnExpose(std::function<void()> refresh) {
  state_->refreshes.push_back(std::move(refresh));
}

std::string MetricsRegistry::Expose() const {
  for (const auto& refresh : state_->refreshes) refresh();
  const double cpu = CpuSeconds() - state_->cpu->Value();
  if (cpu > 0.0) state_->cpu->Increment(cpu);
  state_->resident->Set(ResidentBytes());
  state_->files->Set(OpenFiles());
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

absl::StatusOr<int> MetricsRegistry::Serve(
    HttpOptions options, std::map<std::string, HttpPage> pages) {
  if (options.listen.empty()) return 0;
  pages["/metrics"] = {"text/plain; version=0.0.4; charset=utf-8",
                       [this] { return Expose(); }};
  pages["/healthz"] = {"text/plain; charset=utf-8",
                       [] { return std::string("ok\n"); }};
  pages["/healthz"].is_public = true;
  ASSIGN_OR_RETURN(state_->responder,
                   HttpResponder::Start(std::move(options), std::move(pages)));
  return state_->responder->port();
}

std::vector<double> StepBuckets(double low, double high) {
  std::vector<double> buckets;
  constexpr double kSteps[] = {1.0, 2.0, 5.0};
  double decade = low;
  while (true) {
    for (const double step : kSteps) {
      // The conversion through text makes 5 * 0.001 print as 0.005.
      char text[32];
      std::snprintf(text, sizeof(text), "%.12g", decade * step);
      buckets.push_back(std::stod(text));
      if (buckets.back() >= high) return buckets;
    }
    decade *= 10.0;
  }
}

}  // namespace dapd
