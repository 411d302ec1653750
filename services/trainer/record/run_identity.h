// RunIdentity: what a run's result is a function of. A checkpoint keeps it in
// its state.json; the run folder in identity.json, from before the first record
// of the run on, for as long as there is no checkpoint.
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
  std::string base_model_path;                  // where it was; may change
  std::string base_digest;                      // BaseDigest; empty: not known
  std::string data_digest;                      // Dataset::digest
  std::map<std::string, std::string> settings;  // ResultSettings
};

// An object with these names.
nlohmann::ordered_json ToJson(const RunIdentity& identity);

// FAILED_PRECONDITION (exit code kConfig) unless `recorded`, which ToJson wrote
// for what is in `folder`, leads to the same result as far as that is known;
// names all that differs. Throws JSON's exceptions for what ToJson did not
// write.
absl::Status CompareIdentity(const std::string& folder,
                             const nlohmann::json& recorded,
                             const RunIdentity& identity);

absl::Status WriteIdentity(const std::string& run_folder,
                           const RunIdentity& identity);

// CompareIdentity with what the run folder keeps. OK if it keeps nothing, as
// one without a run and those of early versions, and with a warning if that is
// damaged.
absl::Status CheckIdentity(const std::string& run_folder,
                           const RunIdentity& identity);

}  // namespace dapd
