#include "services/trainer/record/run_identity.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/run_settings.h"

namespace dapd {
namespace {

std::string IdentityPathIn(const std::string& run_folder) {
  return JoinPath(run_folder, "identity.json");
}

std::string ShortenValue(const std::string& value) {
  return value.size() <= 60 ? value : absl::StrCat(Utf8Head(value, 57), "...");
}

}  // namespace

nlohmann::ordered_json ToJson(const RunIdentity& identity) {
  nlohmann::ordered_json json = {{"base_model_path", identity.base_model_path},
                                 {"base_digest", identity.base_digest},
                                 {"data_digest", identity.data_digest},
                                 {"settings", identity.settings}};
  if (!identity.teacher_digests.empty()) {
    json["teacher_digests"] = identity.teacher_digests;
  }
  return json;
}

absl::Status CompareIdentity(const std::string& folder,
                             const nlohmann::json& recorded,
                             const RunIdentity& identity) {
  std::vector<std::string> differences;
  if (!identity.base_digest.empty() &&
      recorded.at("base_digest") != identity.base_digest) {
    differences.push_back(absl::StrCat("the base model: ",
                                       identity.base_model_path,
                                       " does not have the content that ",
                                       recorded.at("base_model_path").dump(),
                                       " had"));
  }
  if (recorded.at("data_digest") != identity.data_digest) {
    differences.push_back("the data: data.path holds different problems");
  }
  const auto teachers =
      recorded.value("teacher_digests", std::map<std::string, std::string>());
  for (const auto& [name, digest] : identity.teacher_digests) {
    const auto known = teachers.find(name);
    // A teacher that is new, or gone, is a difference of the settings.
    if (known == teachers.end() || known->second == digest) continue;
    differences.push_back(absl::StrCat(
        "the teacher '",
        name,
        "': its model or its adapter does not have the content that it had"));
  }
  auto before =
      recorded.at("settings").get<std::map<std::string, std::string>>();
  for (const auto& [key, value] : identity.settings) {
    const auto old = before.find(key);
    if (old == before.end() || old->second != value) {
      differences.push_back(absl::StrCat(
          key,
          ": was ",
          old == before.end() ? "not set" : ShortenValue(old->second),
          ", is ",
          ShortenValue(value)));
    }
    if (old != before.end()) before.erase(old);
  }
  for (const auto& [key, value] : before) {
    if (MayChangeOnResume(key)) continue;
    differences.push_back(
        absl::StrCat(key, ": was ", ShortenValue(value), ", is not set"));
  }
  if (differences.empty()) return absl::OkStatus();
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          folder,
          " belongs to another run; the differences are:\n  ",
          absl::StrJoin(differences, "\n  "),
          "\n  set it back to resume, or choose another run.name; its adapter "
          "is trained further there with lora.start_from: ",
          JoinPath(folder, "adapter"))),
      ExitCode::kConfig);
}

absl::Status WriteIdentity(const std::string& run_folder,
                           const RunIdentity& identity) {
  return WriteFileAtomically(IdentityPathIn(run_folder),
                             ToJson(identity).dump(2) + "\n");
}

absl::Status CheckIdentity(const std::string& run_folder,
                           const RunIdentity& identity) try {
  const std::string path = IdentityPathIn(run_folder);
  if (!FileExists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStateBytes));
  return CompareIdentity(run_folder, nlohmann::json::parse(text), identity);
} catch (const nlohmann::json::exception& error) {
  LogWarning(absl::StrCat(IdentityPathIn(run_folder),
                          " is damaged, so it is not known whether the "
                          "configuration has changed: ",
                          error.what()));
  return absl::OkStatus();
}

std::string RankIdentity(const RunIdentity& identity,
                         const std::string& version,
                         bool is_sharded,
                         bool is_insecure) {
  std::string text =
      absl::StrCat(identity.base_digest, "\n", identity.data_digest, "\n");
  for (const auto& [key, value] : identity.settings) {
    absl::StrAppend(&text, key, "=", value, "\n");
  }
  for (const auto& [name, digest] : identity.teacher_digests) {
    absl::StrAppend(&text, "teacher ", name, "=", digest, "\n");
  }
  absl::StrAppend(&text, "version=", version, "\n");
  if (is_sharded) absl::StrAppend(&text, "sharded\n");
  if (is_insecure) absl::StrAppend(&text, "insecure\n");
  return Sha256Hex(text);
}

}  // namespace dapd
