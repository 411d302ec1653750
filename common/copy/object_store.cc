#include "common/copy/object_store.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/find_python.h"
#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/copy/copy_files.h"

namespace dapd {
namespace {

using Json = nlohmann::json;

constexpr char kName[] = "the copying process";
constexpr absl::Duration kGlance = absl::Milliseconds(200);
// A line of the helper has at most 128 MiB, and a byte may need an escape.
constexpr int64_t kMaxTextBytes = int64_t{64} << 20;

bool IsDenied(const Json& answer) {
  return answer.contains("error") && answer.value("kind", Json()) == "denied";
}

absl::Status ErrorOf(const std::string& url,
                     const std::string& what,
                     const Json& answer) {
  const std::string kind = answer.value("kind", "other");
  const std::string text =
      absl::StrCat(what, ": ", Printable(answer.value("error", "")));
  if (kind == "missing") return absl::NotFoundError(text);
  if (kind == "changed") return absl::DataLossError(text);
  if (kind == "unusable") return absl::FailedPreconditionError(text);
  if (kind == "full") {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; ", HowToFindRoom(url)));
  }
  if (kind == "denied") {
    return absl::PermissionDeniedError(absl::StrCat(
        text,
        absl::StrContains(url, "://")
            ? "; credentials come from the environment as the store's own "
              "client reads them (AWS_PROFILE, AWS_ACCESS_KEY_ID and ~/.aws "
              "for s3://, GOOGLE_APPLICATION_CREDENTIALS for gs://) and must "
              "allow listing, reading, writing and deleting there"
            : absl::StrCat("; user ",
                           ::geteuid(),
                           " must be able to list, read, write and delete "
                           "there")));
  }
  return absl::UnavailableError(text);
}

}  // namespace

std::vector<std::string> ObjectStoreCommand(const std::string& python,
                                            const std::string& url) {
  std::vector<std::string> command = PythonCommand(python, kObjectStorePy);
  command.push_back(url);
  return command;
}

ObjectStore::ObjectStore(ObjectStoreOptions options)
    : options_(std::move(options)), process_(kName, options_.command) {}

absl::StatusOr<Json> ObjectStore::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (true) {
    if (options_.is_cancelled && options_.is_cancelled()) {
      return absl::CancelledError("the copy was told to stop");
    }
    const auto line = process_.Read(std::min(deadline, SteadyNow() + kGlance));
    if (line.ok()) {
      const auto answer = ParseJson(*line, kName);
      if (answer.ok() && answer->is_object()) return *answer;
      return absl::UnavailableError(
          absl::StrCat(kName, " answered: ", Printable(line->substr(0, 200))));
    }
    if (!absl::IsDeadlineExceeded(line.status())) return line.status();
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no sign of progress for ", absl::FormatDuration(timeout)));
    }
  }
}

absl::Status ObjectStore::Start() {
  RETURN_IF_ERROR(process_.Start());
  auto greeting = ReadLine(options_.start_timeout);
  if (greeting.ok() && greeting->contains("ready")) return absl::OkStatus();
  process_.Kill();
  if (absl::IsCancelled(greeting.status())) return greeting.status();
  if (greeting.ok() && IsDenied(*greeting)) {
    return ErrorOf(options_.url, options_.url + " cannot be used", *greeting);
  }
  std::string reason(greeting.status().message());
  if (greeting.ok()) reason = Printable(greeting->dump());
  if (greeting.ok() && greeting->contains("error") &&
      greeting->at("error").is_string()) {
    reason = Printable(greeting->at("error").get<std::string>());
  }
  // The cause of the kill may be gone at the next start.
  if (process_.was_killed()) {
    return absl::UnavailableError(absl::StrCat(options_.url, ": ", reason));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(options_.url,
                   " cannot be used from ",
                   options_.command.front(),
                   ": ",
                   reason,
                   "; it must be a Python with deploy/requirements-copy.txt "
                   "(deploy/install.sh --copy)"));
}

absl::Status ObjectStore::Ask(
    const std::string& what,
    const Json& question,
    const std::function<void(const Json& answer)>& visit) {
  if (!process_.running()) RETURN_IF_ERROR(Start());
  const std::string where = absl::StrCat(what, " at ", options_.url);
  const auto give_up = [&](const absl::Status& error) {
    process_.Kill();
    return absl::Status(error.code(),
                        absl::StrCat(where, ": ", error.message()));
  };
  const std::string line =
      question.dump(-1, ' ', false, Json::error_handler_t::replace);
  const absl::Status sent =
      process_.Write(line, SteadyNow() + options_.progress_timeout);
  if (!sent.ok()) return give_up(sent);
  while (true) {
    const auto answer = ReadLine(options_.progress_timeout);
    if (!answer.ok()) return give_up(answer.status());
    try {
      if (answer->contains("error")) {
        // The helper keeps the credentials that it started with; the next one
        // reads renewed credentials.
        if (IsDenied(*answer)) process_.Kill();
        return ErrorOf(options_.url, where, *answer);
      }
      if (answer->contains("moved")) {
        if (options_.on_sent) options_.on_sent(answer->at("moved"));
        continue;
      }
      visit(*answer);
      if (!answer->value("more", false)) return absl::OkStatus();
    } catch (const Json::exception& error) {
      return give_up(
          absl::UnavailableError(absl::StrCat(kName, ": ", error.what())));
    }
  }
}

absl::StatusOr<std::map<std::string, StoredObject>> ObjectStore::List(
    const std::string& folder) {
  std::map<std::string, StoredObject> objects;
  RETURN_IF_ERROR(Ask("cannot list " + (folder.empty() ? "objects" : folder),
                      {{"op", "list"}, {"under", folder}},
                      [&](const Json& answer) {
                        for (const auto& [name, facts] :
                             answer.at("names").items()) {
                          StoredObject& object = objects[name];
                          facts.at(0).get_to(object.bytes);
                          if (facts.at(1).is_null()) continue;
                          object.age = absl::Seconds(facts.at(1).get<double>());
                        }
                      }));
  return objects;
}

absl::StatusOr<std::string> ObjectStore::Read(const std::string& name,
                                              int64_t max_bytes) {
  std::string text;
  RETURN_IF_ERROR(
      Ask("cannot read " + name,
          {{"op", "read"},
           {"name", name},
           {"limit", std::min(max_bytes, kMaxTextBytes)}},
          [&](const Json& answer) { answer.at("text").get_to(text); }));
  return text;
}

absl::Status ObjectStore::Write(const std::string& name,
                                const std::string& text) {
  if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ",
                                                     name,
                                                     ": it has ",
                                                     text.size(),
                                                     " bytes, at most ",
                                                     kMaxTextBytes,
                                                     " can be read back"));
  }
  return Ask("cannot write " + name,
             {{"op", "write"}, {"name", name}, {"text", text}},
             [](const Json& answer) { answer.at("done"); });
}

absl::Status ObjectStore::Put(const std::string& name,
                              const Content& content,
                              const std::string& path,
                              int64_t offset) {
  return Ask(absl::StrCat("cannot copy ", path),
             {{"op", "put"},
              {"name", name},
              {"bytes", content.bytes},
              {"sha256", content.sha256},
              {"path", path},
              {"offset", offset}},
             [](const Json& answer) { answer.at("done"); });
}

absl::StatusOr<bool> ObjectStore::Check(const std::string& name,
                                        const Content& content) {
  bool is_whole = false;
  const absl::Status asked =
      Ask("cannot check " + name,
          {{"op", "check"},
           {"name", name},
           {"bytes", content.bytes},
           {"sha256", content.sha256}},
          [&](const Json& answer) { is_whole = answer.at("done") == true; });
  // The object has another size.
  if (absl::IsDataLoss(asked)) return false;
  RETURN_IF_ERROR(asked);
  return is_whole;
}

absl::Status ObjectStore::Get(const std::string& name,
                              const Content& content,
                              const std::string& path,
                              int64_t offset) {
  return Ask("cannot read " + name,
             {{"op", "get"},
              {"name", name},
              {"bytes", content.bytes},
              {"sha256", content.sha256},
              {"path", path},
              {"offset", offset}},
             [](const Json& answer) { answer.at("done"); });
}

absl::Status ObjectStore::Remove(const std::vector<std::string>& names) {
  if (names.empty()) return absl::OkStatus();
  return Ask("cannot remove objects",
             {{"op", "remove"}, {"names", names}},
             [](const Json& answer) { answer.at("done"); });
}

}  // namespace dapd
