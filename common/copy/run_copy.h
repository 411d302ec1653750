// The copy of a run at a URL. Three kinds of objects:
//
//   owner.json               whose copy it is, and which process makes it
//   objects/<SHA-256>        bytes of files: written once, verified, never
//                            changed
//   commits/step-000050.json what the run's folder held when the checkpoint of
//                            step 50 was there: each file as a list of objects,
//                            one behind the other
//
// A commit is written last, once every object it names was read back, and ends
// in its own digest. What no commit names is nobody's: nothing half-copied can
// be restored, whatever dies. Files that grow (ledger.jsonl) share the objects
// of their beginnings, equal files one object.
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

// What a commit says.
struct RunCopy {
  int64_t step = 0;
  std::string run_id;  // RunId
  // By path in the run folder; its objects in order.
  std::map<std::string, std::vector<Content>> files;

  bool operator==(const RunCopy&) const = default;
};

int64_t BytesOf(const std::vector<Content>& parts);
int64_t BytesOf(const RunCopy& copy);

std::string CommitText(const RunCopy& copy);
// DATA_LOSS, beginning with `where`, for anything that CommitText did not
// write: cut off, damaged, or with paths that lead out of a folder.
absl::StatusOr<RunCopy> ParseCommit(absl::string_view text,
                                    const std::string& where);

// "commits/step-000050.json", and back; nothing for another name.
std::string CommitName(int64_t step);
std::optional<int64_t> StepOfCommit(absl::string_view name);
// "objects/<SHA-256>", and whether a name is of that form.
std::string ObjectName(const Content& content);
bool IsObjectName(absl::string_view name);
// Whether it is that of an object that is not written whole
// (ObjectStore::List).
bool IsPartName(absl::string_view name);

// The steps that have a commit, in order; none where there is no copy.
absl::StatusOr<std::vector<int64_t>> ListCommits(ObjectStore& store);
absl::StatusOr<RunCopy> ReadCommit(ObjectStore& store, int64_t step);

// The random name of the run in `folder`, from its copy.json, which is made if
// it is not there. A folder that was restored keeps it.
absl::StatusOr<std::string> RunId(const std::string& folder);

}  // namespace dapd
