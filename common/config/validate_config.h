// Rules between keys: values that contradict each other though each is valid by
// itself, and keys that have no effect beside the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/config/config.h"
#include "common/config/load_config.h"

namespace dapd {

// Returns one line, which names the keys, for each contradiction.
std::vector<std::string> FindContradictions(const Config& config);

// Returns the contradictions within the section `security`.
std::vector<std::string> FindContradictions(const SecuritySection& security);

// Returns a warning for each key that is given but has no effect: keys that the
// preset's terms do not read (unless objective.terms replace them),
// evaluation.samples if evaluation.temperature is 0, and run.gpus if
// model.device is cpu.
std::vector<std::string> WarningsOfVainKeys(const LoadedConfig& loaded);

// run.gpus is kAllGpus or a number up to kMostGpus.
inline constexpr char kAllGpus[] = "auto";
inline constexpr int64_t kMostGpus = 256;

// Returns an error if keys and values cannot be in `kv` in a model of `model`.
absl::Status CheckKvPrecision(KvPrecision kv, Precision model);

// Returns an error if a run may not train with these settings, which are for
// workers that only answer.
absl::Status CheckTrains(const Config& config);

// Returns the number in run.gpus; 0 if it is kAllGpus or not a number.
int64_t NumGpusAsked(const RunConfig& run);

// Returns the smallest number of samples of a step that a rank can take: whole
// micro-batches and whole groups of answers (rollout.group_size).
int64_t SamplesOfUnit(const Config& config);

// Splits "host:port" or "[v6]:port". False if it is neither.
bool SplitAddress(const std::string& address, std::string* host, int* port);

// Returns the path in "file://PATH", the form of an address that names a file
// with workers; nothing for any other address.
std::optional<std::string> AddressFilePath(absl::string_view address);

// Returns whether the host is in 127.0.0.0/8, or is ::1 or localhost.
bool IsLoopback(const std::string& host);

}  // namespace dapd
