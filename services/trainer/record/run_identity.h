// RunIdentity: everything that determines a run's result. A checkpoint keeps it
// in its state.json. The run folder keeps it in identity.json, which is written
// before the first record of the run and serves until there is a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

#include "common/base/json.h"

namespace dapd {

// The size of the largest JSON file with an identity that is read.
inline constexpr uint64_t kMaxStateBytes = uint64_t{1} << 24;

struct RunIdentity {
  std::string base_model_path;  // may change
  std::string base_digest;      // BaseDigest; empty: not known
  std::string data_digest;      // Dataset::digest
  // TeacherDigest of each further teacher, by name.
  std::map<std::string, std::string> teacher_digests;
  std::map<std::string, std::string> settings;  // ResultSettings
};

// Returns an object with the fields' names.
nlohmann::ordered_json ToJson(const RunIdentity& identity);

// FAILED_PRECONDITION (exit code kConfig), naming all differences, unless
// `recorded`, which ToJson wrote for the run in `folder`, leads to the same
// result as far as known. Throws JSON's exceptions for anything that ToJson did
// not write.
absl::Status CompareIdentity(const std::string& folder,
                             const nlohmann::json& recorded,
                             const RunIdentity& identity);

absl::Status WriteIdentity(const std::string& run_folder,
                           const RunIdentity& identity);

// Calls CompareIdentity with the run folder's identity.json. Returns OK without
// the file, for a folder without a run or of an early version, and OK with a
// warning if the file is damaged.
absl::Status CheckIdentity(const std::string& run_folder,
                           const RunIdentity& identity);

// Returns the SHA-256 by which the ranks of one run know each other when they
// meet (RankOptions of common/collective): of the identity without
// base_model_path, which may differ between machines; of the program's version,
// since ranks of two versions may compute or send different things; of whether
// the ranks share the base model's layers; and of security.insecure, which
// decides how they name adapters to the workers.
std::string RankIdentity(const RunIdentity& identity,
                         const std::string& version,
                         bool is_sharded,
                         bool is_insecure);

}  // namespace dapd
