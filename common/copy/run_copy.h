// Defines the copy of a run at a URL. It has three kinds of objects:
//
//   owner.json               the run of this copy, and the copying process
//   objects/<SHA-256>        bytes of files: written once, verified, never
//                            changed
//   commits/step-000050.json the content of the run's folder at the checkpoint
//                            of step 50: each file as a list of objects, which
//                            are joined in order
//
// A commit is written last, after every object that it names was read back, and
// ends with its own digest. Objects that no commit names belong to no copy, so
// a half-made copy can never be restored, whatever dies. Versions of a growing
// file (ledger.jsonl) share the objects of their beginnings, and equal files
// share one object.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/copy/object_store.h"

namespace dapd {

inline constexpr char kCopyOwner[] = "owner.json";
inline constexpr char kCopyObjects[] = "objects";
inline constexpr char kCopyCommits[] = "commits";

// Holds the content of a commit.
struct RunCopy {
  int64_t step = 0;
  std::string run_id;  // see RunId
  // Maps the path in the run folder to the file's objects, in order.
  std::map<std::string, std::vector<Content>> files;

  bool operator==(const RunCopy&) const = default;
};

int64_t BytesOf(const std::vector<Content>& parts);
int64_t BytesOf(const RunCopy& copy);

std::string CommitText(const RunCopy& copy);
// Returns DATA_LOSS with a message that begins with `where` for any text that
// CommitText did not write: the text is cut off or damaged, or has paths that
// lead out of the folder.
absl::StatusOr<RunCopy> ParseCommit(absl::string_view text,
                                    const std::string& where);

// Convert between a step and "commits/step-000050.json"; nothing for another
// name.
std::string CommitName(int64_t step);
std::optional<int64_t> StepOfCommit(absl::string_view name);
// Return "objects/<SHA-256>", and whether a name has this form.
std::string ObjectName(const Content& content);
bool IsObjectName(absl::string_view name);
// Returns whether this is the name of an incomplete object (ObjectStore::List).
bool IsPartName(absl::string_view name);

// Returns the steps that have a commit, in order; empty if there is no copy.
absl::StatusOr<std::vector<int64_t>> ListCommits(ObjectStore& store);
absl::StatusOr<RunCopy> ReadCommit(ObjectStore& store, int64_t step);

// Returns the random name of the run in `folder` from its copy.json, which is
// created if it does not exist. A restored folder keeps the name.
absl::StatusOr<std::string> RunId(const std::string& folder);

}  // namespace dapd
