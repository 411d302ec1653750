// Exposes what an operator must see of a process's security:
//   dapd_insecure{listener="grpc"|"metrics"}  1: other machines reach this
//     listener in plain text
//   dapd_certificate_expiry_timestamp_seconds  end of the validity of the
//     certificate in its file at the moment; only with a certificate
#pragma once

#include <memory>
#include <string>

#include "common/metrics/metrics_registry.h"
#include "common/security/security.h"

namespace dapd {

// Must be called before MetricsRegistry::Serve.
void AddSecurityMetrics(std::shared_ptr<const Security> security,
                        const std::string& grpc_listen,
                        const std::string& metrics_listen,
                        MetricsRegistry* registry);

}  // namespace dapd
