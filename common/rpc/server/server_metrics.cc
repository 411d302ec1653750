#include "common/rpc/server/server_metrics.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"

#include "common/rpc/server/authorization.h"

namespace dapd {
namespace {

// Returns only methods of the table, so that no caller can invent labels.
std::string MethodLabel(const std::string& method) {
  const MethodRule* rule = FindRule(method);
  return rule == nullptr ? "other" : rule->method.substr(1);
}

Counter Refused(MetricsRegistry* registry, const std::string& reason) {
  return registry->AddCounter("dapd_rpc_refused_total",
                              "Calls refused before any handler, by reason.",
                              {{"reason", reason}});
}

Counter Exceptions(MetricsRegistry* registry, const std::string& method) {
  return registry->AddCounter("dapd_rpc_exceptions_total",
                              "Calls that an exception ended.",
                              {{"method", MethodLabel(method)}});
}

}  // namespace

RpcObserver MakeRpcObserver(MetricsRegistry* registry) {
  // They exist before the first event, so that rates have a start.
  for (const char* reason :
       {"unauthenticated", "forbidden", "unknown_method"}) {
    Refused(registry, reason);
  }
  for (const MethodRule& rule : AuthorizationTable()) {
    Exceptions(registry, rule.method);
  }
  return {.on_refused =
              [registry](const std::string& reason) {
                Refused(registry, reason).Add();
              },
          .on_handled =
              [registry](const std::string& method, int code) {
                registry
                    ->AddCounter(
                        "dapd_rpc_handled_total",
                        "Calls that a handler ended, by status.",
                        {{"method", MethodLabel(method)},
                         {"code",
                          absl::AsciiStrToLower(absl::StatusCodeToString(
                              static_cast<absl::StatusCode>(code)))}})
                    .Add();
              },
          .on_exception =
              [registry](const std::string& method) {
                Exceptions(registry, method).Add();
              }};
}

}  // namespace dapd
