// What the ranks of one run have to agree on before they compute together
// (RankOptions of common/collective): they meet with it, and rank 0 refuses
// another.
#pragma once

#include <string>

#include "services/trainer/record/run_identity.h"

namespace dapd {

// A digest of what the result is a function of, of the version of the program,
// since ranks of two may compute or say different things, of whether ranks
// share the base model's layers, and of security.insecure, by which they name
// adapters to the workers. Of `identity`, base_model_path is not in it: each
// machine has its own.
std::string RankIdentity(const RunIdentity& identity,
                         const std::string& version,
                         bool is_sharded,
                         bool is_insecure);

}  // namespace dapd
