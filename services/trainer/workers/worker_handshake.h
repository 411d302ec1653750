// The trainer's checks of a worker before it gives it tasks: it is the right
// program with the right model, and it serves the weights that it was sent.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/transfer/policy_update.h"
#include "dapd/v1/worker.pb.h"

namespace dapd {

// Returns the worker's max_in_flight. FAILED_PRECONDITION names each field that
// differs, with both values, and both versions if they differ.
absl::StatusOr<int64_t> CheckDescription(const v1::DescribeResponse& worker,
                                         const std::string& service,
                                         const ExpectedWorker& expected);

// Returns a sentence about a worker at `address` that was built from other
// sources than this trainer; empty for the same sources. Such a worker may
// still be used: its probe decides.
std::string DescribeSkew(const v1::DescribeResponse& worker,
                         const std::string& address);

// Returns FAILED_PRECONDITION if the worker acknowledged other weights than
// `update` as its set `set`, or if its probe differs by more than the
// tolerance; names both numbers of the token that differs most.
absl::Status CheckAcknowledgement(const v1::LoadAdapterResponse& response,
                                  WeightSet set,
                                  const PolicyUpdate& update);

}  // namespace dapd
