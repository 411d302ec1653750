#include "common/metrics/security_metrics.h"

#include <utility>

namespace dapd {
namespace {

void AddInsecure(const std::string& listener,
                 const absl::StatusOr<Protection>& protection,
                 MetricsRegistry* registry) {
  const bool is_insecure =
      protection.ok() && *protection == Protection::kInsecure;
  registry
      ->AddGauge("dapd_insecure",
                 "1 if other machines can reach this process in plain text.",
                 {{"listener", listener}})
      .Set(is_insecure ? 1 : 0);
}

}  // namespace

void AddSecurityMetrics(std::shared_ptr<const Security> security,
                        const std::string& grpc_listen,
                        const std::string& metrics_listen,
                        MetricsRegistry* registry) {
  AddInsecure("grpc", security->ForRpc(grpc_listen), registry);
  if (!metrics_listen.empty()) {
    AddInsecure("metrics", security->ForHttp(metrics_listen), registry);
  }
  if (!security->has_certificate()) return;
  const Gauge expiry =
      registry->AddGauge("dapd_certificate_expiry_timestamp_seconds",
                         "When this process's certificate expires, in seconds "
                         "since the Unix epoch.");
  registry->OnExpose([security = std::move(security), expiry] {
    expiry.Set(static_cast<double>(
        absl::ToUnixSeconds(security->CertificateExpiry())));
  });
}

}  // namespace dapd
