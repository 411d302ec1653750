// The counters of an RpcServer: dapd_rpc_handled_total{method, code},
// dapd_rpc_exceptions_total{method}, dapd_rpc_refused_total{reason}.
#pragma once

#include "common/metrics/metrics_registry.h"
#include "common/rpc/server/handler_guard.h"

namespace dapd {

// `registry` must outlive the server.
RpcObserver MakeRpcObserver(MetricsRegistry* registry);

}  // namespace dapd
