#include "common/config/validate_config.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/safe_name.h"
#include "common/config/config_keys.h"
#include "common/config/copy_place.h"
#include "common/config/notify_url.h"
#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/config/step_kind.h"
#include "common/config/teacher_problems.h"

namespace dapd {
namespace {

constexpr size_t kMaxMarkerBytes = 256;

// Returns why a payload of a few tokens is not enough for `term`. `top_k_key`
// is the key that sets the top_k of the term.
std::string ProblemWithPayload(const Term& term,
                               const std::string& top_k_key,
                               const TeacherSection& teacher) {
  if (teacher.payload != Payload::kTopK) return "";
  const bool is_whole = std::holds_alternative<Mixture>(term.target) ||
                        std::holds_alternative<Routed>(term.target);
  if (is_whole || term.support.kind == SupportKind::kStudentTopK) {
    return "needs the teachers' whole distributions; set teacher.payload to "
           "hidden_states or logits";
  }
  if (term.support.kind == SupportKind::kTeacherTopK &&
      term.support.k > teacher.top_k) {
    // A resumed run may change neither.
    return absl::StrCat("takes the teacher's ",
                        term.support.k,
                        " most probable tokens, but a teacher sends only ",
                        teacher.top_k,
                        "; set teacher.top_k to ",
                        term.support.k,
                        " or more, or ",
                        top_k_key,
                        " to ",
                        teacher.top_k,
                        " or less. A run that an older version began with "
                        "these settings cannot be resumed with others: choose "
                        "another run.name as well");
  }
  return "";
}

void CheckTerms(const Config& config, std::vector<std::string>& problems) {
  std::set<std::string> names;
  const std::vector<Term> terms = ExpandTerms(config.objective);
  if (terms.empty()) problems.push_back("objective.terms is empty");
  const bool are_presets = config.objective.terms.empty();
  const std::string list = are_presets ? "objective.preset" : "objective.terms";
  const std::string top_k_key =
      are_presets ? "objective.top_k" : "top_k of this term";
  for (const Term& term : terms) {
    const auto report = [&](const std::string& problem) {
      if (problem.empty()) return;
      problems.push_back(
          absl::StrCat(list, ": term '", term.name, "': ", problem));
    };
    if (!names.insert(term.name).second) report("the name occurs twice");
    report(ProblemWith(term));
    report(ProblemWithPayload(term, top_k_key, config.teacher));
  }
}

// Several answers to the same problem have to differ.
void CheckAnswers(const Config& config, std::vector<std::string>& problems) {
  const RolloutSection& rollout = config.rollout;
  const auto report = [&](bool is_wrong, const std::string& problem) {
    if (is_wrong) problems.push_back(problem);
  };
  report(config.trainer.batch_size % rollout.group_size != 0,
         absl::StrCat("trainer.batch_size (",
                      config.trainer.batch_size,
                      ") is not a multiple of rollout.group_size (",
                      rollout.group_size,
                      "): a step takes whole groups of answers"));
  const bool has_several =
      rollout.source != ReferenceSource::kGiven || rollout.group_size > 1;
  report(has_several && rollout.temperature == 0.0,
         absl::StrCat(
             "rollout.temperature is 0, which makes all answers to a "
             "problem the same, but ",
             rollout.source != ReferenceSource::kGiven
                 ? absl::StrCat("rollout.source: ", NameOf(rollout.source))
                 : "rollout.group_size above 1",
             " needs different ones: raise the temperature"));
  report(TakesTurns(config) && rollout.source != ReferenceSource::kGiven,
         absl::StrCat("objective.gkd.reference_share is ",
                      config.objective.gkd.reference_share,
                      ", but with rollout.source: ",
                      NameOf(rollout.source),
                      " the references are sampled answers, too: set "
                      "objective.gkd.reference_share to 0 or rollout.source "
                      "to reference"));
  report(
      rollout.group_size == 1 &&
          config.objective.sdpo.feedback == FeedbackRule::kNever &&
          ReadsView(ExpandTerms(config.objective), ViewName::kSiblingRollout),
      "sibling_rollout has nothing to show: an answer has no siblings where "
      "rollout.group_size is 1, and objective.sdpo.feedback is never; set "
      "rollout.group_size to 8, say");
}

void CheckListen(const std::string& key,
                 const std::string& address,
                 bool is_protected,
                 std::vector<std::string>& problems) {
  std::string host;
  int port = 0;
  if (!SplitAddress(address, &host, &port)) {
    problems.push_back(absl::StrCat(key, ": '", address, "' is not host:port"));
  } else if (!IsLoopback(host) && !is_protected) {
    problems.push_back(absl::StrCat(
        key,
        ": '",
        address,
        "' can be reached from other machines without encryption; listen on "
        "127.0.0.1, give security.certificate, security.private_key and "
        "security.ca, or accept that with ",
        absl::StrContains(key, "metrics") ? "security.insecure_metrics: true"
                                          : "security.insecure: true"));
  }
}

void CheckPeer(const std::string& key,
               const std::string& address,
               const char* what,
               bool is_protected,
               std::vector<std::string>& problems) {
  std::string host;
  int port = 0;
  if (!SplitAddress(address, &host, &port) || port == 0) {
    problems.push_back(absl::StrCat(key, ": '", address, "' is not ", what));
  } else if (!IsLoopback(host) && !is_protected) {
    problems.push_back(absl::StrCat(
        key,
        ": '",
        address,
        "' is on another machine: adapters, problems and answers would "
        "travel without encryption; give security.certificate, "
        "security.private_key and security.ca, or accept that with "
        "security.insecure: true"));
  }
}

// Addresses in a file are checked when the file is read, and their protection
// when they are dialled.
void CheckWorkers(const std::string& key,
                  const std::vector<std::string>& addresses,
                  bool is_protected,
                  std::vector<std::string>& problems) {
  for (const std::string& address : addresses) {
    if (AddressFilePath(address).has_value()) continue;
    CheckPeer(
        key, address, "host:port, nor file://PATH", is_protected, problems);
  }
}

void Require(bool condition,
             const std::string& problem,
             std::vector<std::string>& problems) {
  if (!condition) problems.push_back(problem);
}

void CheckTrainer(const TrainerSection& trainer,
                  std::vector<std::string>& problems) {
  Require(trainer.steps <= trainer.schedule_steps,
          absl::StrCat("trainer.steps (",
                       trainer.steps,
                       ") exceeds trainer.schedule_steps (",
                       trainer.schedule_steps,
                       "): the learning rate would be zero before the end. A "
                       "new run sets trainer.schedule_steps higher; one that "
                       "has begun keeps its schedule, and its adapter is "
                       "trained further by another run.name with "
                       "lora.start_from: <the run's folder>/adapter"),
          problems);
  Require(trainer.micro_batch_size <= trainer.batch_size,
          absl::StrCat("trainer.micro_batch_size (",
                       trainer.micro_batch_size,
                       ") exceeds trainer.batch_size (",
                       trainer.batch_size,
                       ")"),
          problems);
}

void CheckRanks(const Config& config, std::vector<std::string>& problems) {
  const TrainerSection& trainer = config.trainer;
  const int64_t unit = SamplesOfUnit(config);
  const int64_t units = (trainer.batch_size + unit - 1) / unit;
  Require(trainer.ranks <= units,
          absl::StrCat("trainer.ranks (",
                       trainer.ranks,
                       ") is more than the ",
                       units,
                       unit == trainer.micro_batch_size
                           ? " micro-batches of a step"
                           : " parts of a step that hold whole micro-batches "
                             "and whole groups of answers",
                       ": some ranks would have nothing to do"),
          problems);
  Require(trainer.rank < trainer.ranks,
          absl::StrCat("trainer.rank (",
                       trainer.rank,
                       ") counts from 0 and must be below trainer.ranks (",
                       trainer.ranks,
                       ")"),
          problems);
  Require(!trainer.shard_base || trainer.ranks > 1,
          "trainer.shard_base splits the base over the trainer's ranks, but "
          "trainer.ranks is 1",
          problems);
}

void CheckGpus(const RunConfig& run, std::vector<std::string>& problems) {
  Require(run.gpus == kAllGpus || NumGpusAsked(run) > 0,
          absl::StrCat("run.gpus is '",
                       run.gpus,
                       "' and must be auto or a number of GPUs from 1 to ",
                       kMostGpus),
          problems);
}

// A URL in a file is checked when the file is read.
void CheckNotify(const RunConfig& run, std::vector<std::string>& problems) {
  const std::string& url = run.notify_url;
  Require(!url.empty() ||
              (run.notify_secret_file.empty() && run.notify_ca_file.empty()),
          "run.notify_secret_file and run.notify_ca_file need run.notify_url, "
          "which is missing",
          problems);
  if (url.empty() || absl::StartsWith(url, kUrlFilePrefix)) return;
  const std::string problem =
      ProblemWithNotifyUrl(url, !run.notify_secret_file.empty());
  Require(problem.empty(), absl::StrCat("run.notify_url ", problem), problems);
}

void CheckGrader(const GraderSection& grader,
                 std::vector<std::string>& problems) {
  Require(grader.command.empty() || grader.url.empty(),
          "grader.command and grader.url are both given; one grader grades all "
          "answers",
          problems);
  Require(grader.command.empty() || !grader.command.front().empty(),
          "grader.command begins with an empty text; it must begin with a "
          "program",
          problems);
  Require(!grader.url.empty() ||
              (grader.secret_file.empty() && grader.ca_file.empty()),
          "grader.secret_file and grader.ca_file need grader.url, which is "
          "missing",
          problems);
  if (grader.url.empty()) return;
  const std::string problem =
      ProblemWithGraderUrl(grader.url, !grader.secret_file.empty());
  Require(problem.empty(), absl::StrCat("grader.url ", problem), problems);
}

// Addresses that other machines can reach, and addresses on other machines.
void CheckEndpoints(const Config& config, std::vector<std::string>& problems) {
  const SecuritySection& security = config.security;
  const bool rpc_is_protected =
      security.insecure || !security.certificate.empty();
  CheckWorkers("rollout.addresses",
               config.rollout.addresses,
               rpc_is_protected,
               problems);
  CheckWorkers("teacher.addresses",
               config.teacher.addresses,
               rpc_is_protected,
               problems);
  for (const auto& [key, address] :
       {std::pair{"rollout.listen", &config.rollout.listen},
        std::pair{"teacher.listen", &config.teacher.listen},
        std::pair{"trainer.listen", &config.trainer.listen}}) {
    CheckListen(key, *address, rpc_is_protected, problems);
  }
  for (const TeacherModel& teacher : config.teachers) {
    const std::string key = absl::StrCat("teachers: '", teacher.name, "': ");
    CheckWorkers(
        key + "addresses", teacher.addresses, rpc_is_protected, problems);
    CheckListen(key + "listen", teacher.listen, rpc_is_protected, problems);
    if (teacher.metrics_listen.empty()) continue;
    CheckListen(key + "metrics_listen",
                teacher.metrics_listen,
                rpc_is_protected || security.insecure_metrics,
                problems);
  }
  if (config.trainer.ranks > 1) {
    CheckPeer("trainer.rendezvous",
              config.trainer.rendezvous,
              "host:port",
              rpc_is_protected,
              problems);
  }
  for (const auto& [key, address] :
       {std::pair{"metrics.rollout_listen", &config.metrics.rollout_listen},
        std::pair{"metrics.teacher_listen", &config.metrics.teacher_listen},
        std::pair{"metrics.trainer_listen", &config.metrics.trainer_listen}}) {
    if (address->empty()) continue;
    CheckListen(
        key, *address, rpc_is_protected || security.insecure_metrics, problems);
  }
}

}  // namespace

absl::Status CheckKvPrecision(KvPrecision kv, Precision model) {
  if (kv == KvPrecision::kModel || model == Precision::kBfloat16) {
    return absl::OkStatus();
  }
  return ConfigError(absl::StrCat("keys and values in ",
                                  NameOf(kv),
                                  " need a model in bfloat16, and it is in ",
                                  NameOf(model)));
}

absl::Status CheckTrains(const Config& config) {
  if (config.rollout.kv_precision == KvPrecision::kModel) {
    return absl::OkStatus();
  }
  return ConfigError(absl::StrCat(
      "rollout.kv_precision is ",
      NameOf(config.rollout.kv_precision),
      ": the answers of a run that trains would come from another policy than "
      "the trained one; leave rollout.kv_precision at model, and give `dapd "
      "eval`, `dapd generate` or `dapd serve` --kv-precision"));
}

int64_t NumGpusAsked(const RunConfig& run) {
  int64_t count = 0;
  const bool is_number = absl::SimpleAtoi(run.gpus, &count);
  return is_number && count >= 1 && count <= kMostGpus ? count : 0;
}

int64_t SamplesOfUnit(const Config& config) {
  return std::lcm(config.trainer.micro_batch_size, config.rollout.group_size);
}

bool SplitAddress(const std::string& address, std::string* host, int* port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  *host = address.substr(0, colon);
  if (host->front() == '[' && host->back() == ']') {
    *host = host->substr(1, host->size() - 2);
  } else if (absl::StrContains(*host, ":")) {
    return false;
  }
  return absl::SimpleAtoi(address.substr(colon + 1), port) && *port >= 0 &&
         *port <= 65535;
}

std::optional<std::string> AddressFilePath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, kFilePrefix) || address.empty()) {
    return std::nullopt;
  }
  return std::string(address);
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  // A name such as 127.0.0.1.example.org can lead anywhere.
  in_addr v4 = {};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6 = {};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::vector<std::string> FindContradictions(const SecuritySection& security) {
  std::vector<std::string> problems;
  const int num_files = !security.certificate.empty() +
                        !security.private_key.empty() + !security.ca.empty();
  if (num_files != 0 && num_files != 3) {
    problems.push_back(
        "security.certificate, security.private_key and security.ca belong "
        "together: give all three or none");
  }
  if (security.insecure && num_files != 0) {
    problems.push_back(
        "security.insecure asks for plaintext, security.certificate for TLS: "
        "leave one out");
  }
  const auto& tokens = security.tokens;
  if (security.insecure && !(security.token.empty() && tokens.viewer.empty() &&
                             tokens.trainer.empty() && tokens.admin.empty())) {
    problems.push_back(
        "security.insecure would send tokens in plain text, where anyone on "
        "the network could read them: leave out security.token and "
        "security.tokens, or give "
        "certificates instead of security.insecure");
  }
  return problems;
}

std::vector<std::string> FindContradictions(const Config& config) {
  std::vector<std::string> problems = FindContradictions(config.security);
  Require(!config.model.path.empty(), "model.path is missing", problems);
  Require(IsSafeName(config.run.name),
          absl::StrCat("run.name: '",
                       config.run.name,
                       "' is used as a folder's name: at most 128 letters, "
                       "digits, . _ - only, not beginning with . or -"),
          problems);
  Require(config.rollout.max_new_tokens < config.data.max_prompt_tokens,
          absl::StrCat("rollout.max_new_tokens (",
                       config.rollout.max_new_tokens,
                       ") leaves no room for a prompt in "
                       "data.max_prompt_tokens (",
                       config.data.max_prompt_tokens,
                       "): raise the latter above the former by the tokens of "
                       "the longest prompt"),
          problems);
  Require(config.evaluation.marker.size() <= kMaxMarkerBytes,
          absl::StrCat("evaluation.marker has ",
                       config.evaluation.marker.size(),
                       " bytes; the limit is ",
                       kMaxMarkerBytes),
          problems);
  Require(!config.evaluation.claims || (!config.evaluation.path.empty() &&
                                        config.evaluation.kl_problems > 0),
          "evaluation.claims needs held-out problems to sample answers to: "
          "give evaluation.path, and an evaluation.kl_problems above 0, or "
          "leave evaluation.claims out",
          problems);
  CheckTrainer(config.trainer, problems);
  Require(config.trainer.logits_precision == Precision::kFloat32 ||
              config.model.precision == Precision::kBfloat16,
          "trainer.logits_precision is bfloat16, but the logits of a float32 "
          "model stay float32: leave the key out, or set model.precision to "
          "bfloat16",
          problems);
  for (std::string& problem : FindCopyProblems(config)) {
    problems.push_back(std::move(problem));
  }
  CheckRanks(config, problems);
  CheckAnswers(config, problems);
  if (const absl::Status status =
          CheckKvPrecision(config.rollout.kv_precision, config.model.precision);
      !status.ok()) {
    problems.push_back(
        absl::StrCat("rollout.kv_precision: ", status.message()));
  }
  CheckTerms(config, problems);
  for (std::string& problem : FindTeacherProblems(config)) {
    problems.push_back(std::move(problem));
  }
  if (!config.prompts.system.empty() && !config.data.system.empty()) {
    problems.push_back(
        "prompts.system, data.system: both are set, and prompts.system would "
        "replace data.system; set one of the two");
  }
  for (std::string& problem : FindPromptProblems(config.prompts)) {
    problems.push_back(std::move(problem));
  }
  CheckGpus(config.run, problems);
  CheckNotify(config.run, problems);
  CheckGrader(config.grader, problems);
  CheckEndpoints(config, problems);
  return problems;
}

std::vector<std::string> WarningsOfVainKeys(const LoadedConfig& loaded) {
  std::vector<std::string> warnings;
  const RunConfig& run = loaded.config.run;
  if (run.gpus != kAllGpus &&
      loaded.config.model.device == DeviceChoice::kCpu) {
    warnings.push_back(absl::StrCat("run.gpus (",
                                    loaded.origins.at("run.gpus"),
                                    ") has no effect: model.device is cpu"));
  }
  const EvaluationSection& evaluation = loaded.config.evaluation;
  if (evaluation.samples > 1 && evaluation.temperature == 0.0) {
    warnings.push_back(absl::StrCat("evaluation.samples (",
                                    loaded.origins.at("evaluation.samples"),
                                    ") has no effect: at "
                                    "evaluation.temperature 0 all answers to a "
                                    "problem are the same"));
  }
  const std::set<std::string> named =
      TeachersNamed(ExpandTerms(loaded.config.objective));
  if (!loaded.config.data.teacher_column.empty() &&
      !named.contains(kRowTeacher)) {
    warnings.push_back(absl::StrCat("data.teacher_column (",
                                    loaded.origins.at("data.teacher_column"),
                                    ") has no effect: no term has the "
                                    "teacher_weights ",
                                    kRowTeacher));
  }
  for (const TeacherModel& teacher : loaded.config.teachers) {
    if (named.contains(teacher.name) || named.contains(kRowTeacher)) continue;
    warnings.push_back(absl::StrCat("teachers (",
                                    loaded.origins.at("teachers"),
                                    "): no term reads '",
                                    teacher.name,
                                    "'; its workers are not asked"));
  }
  if (!loaded.config.objective.terms.empty()) return warnings;
  const std::string& preset = loaded.config.objective.preset;
  for (const std::string& key : UnreadKeys(preset)) {
    const std::string& origin = loaded.origins.at(key);
    if (origin == "default") continue;
    warnings.push_back(absl::StrCat(key,
                                    " (",
                                    origin,
                                    ") has no effect: the terms of preset ",
                                    preset,
                                    " do not read it"));
  }
  return warnings;
}

}  // namespace dapd
