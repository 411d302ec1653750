// dapd serve: OpenAI's HTTP API over rollout workers or a model.

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "common/base/command_line.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stop_requests.h"
#include "common/config/validate_config.h"
#include "common/data/text_pipeline.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/model_config.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/pool/address_resolver.h"
#include "common/rpc/rpc_credentials.h"
#include "common/security/security.h"
#include "services/cli/command.h"
#include "services/cli/dial_service.h"
#include "services/cli/serve/api_server.h"
#include "services/cli/serve/local_model.h"
#include "services/cli/serve/local_worker.h"

namespace dapd {
namespace {

// How long the running answers may take to end after a signal; containers
// usually wait for 10 s.
constexpr absl::Duration kStopGrace = absl::Seconds(8);

struct ServeOptions {
  std::string model;
  std::string adapter;
  std::string precision = "float32";
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t slots = 32;
  KvPrecision kv_precision = KvPrecision::kModel;
  std::string workers;
  std::vector<std::string> security;
  std::string listen = "127.0.0.1:8000";
  std::string port_file;
  std::string name;
  std::string token_file;
  std::string certificate;
  std::string private_key;
  bool insecure = false;
  std::vector<std::string> allowed_hosts;
  int64_t max_tokens = 2048;
  int64_t max_requests = 64;
  double answer_timeout = 600.0;
  double peer_timeout = 30.0;
};

// Whoever reaches the port can have the model compute for him.
absl::Status CheckListen(const ServeOptions& options) {
  std::string host;
  int port = 0;
  if (!SplitAddress(options.listen, &host, &port)) {
    return WithExitCode(
        absl::InvalidArgumentError(
            absl::StrCat("--listen '", options.listen, "' is not host:port")),
        ExitCode::kUsage);
  }
  if (options.certificate.empty() != options.private_key.empty()) {
    return WithExitCode(absl::InvalidArgumentError(
                            "--certificate and --private-key belong together"),
                        ExitCode::kUsage);
  }
  const bool is_protected =
      !options.certificate.empty() && !options.token_file.empty();
  if (IsLoopback(host) || is_protected || options.insecure) {
    return absl::OkStatus();
  }
  return ConfigError(absl::StrCat(
      "--listen ",
      options.listen,
      " would be open to other machines: give --certificate, --private-key and "
      "--token-file, listen on 127.0.0.1, or accept this by --insecure"));
}

absl::StatusOr<std::vector<DeskWorker>> DialWorkers(
    const ServeOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   LoadCommandSecurity(options.security));
  const RpcCredentials credentials(security);
  std::vector<DeskWorker> workers;
  for (const absl::string_view part :
       absl::StrSplit(options.workers, ',', absl::SkipWhitespace())) {
    const std::string address(absl::StripAsciiWhitespace(part));
    const auto parsed = ParseHostPort(address);
    if (!parsed.ok()) {
      return WithExitCode(
          absl::InvalidArgumentError(absl::StrCat(
              "--workers: ", std::string(parsed.status().message()))),
          ExitCode::kUsage);
    }
    ASSIGN_OR_RETURN(auto channel,
                     OpenChannel(address, credentials, {Role::kRollout}));
    workers.push_back({.name = address, .channel = std::move(channel)});
  }
  if (workers.empty()) {
    return WithExitCode(absl::InvalidArgumentError("--workers names no worker"),
                        ExitCode::kUsage);
  }
  return workers;
}

absl::Status Serve(const ServeOptions& options) {
  RETURN_IF_ERROR(CheckListen(options));
  SetLogName("serve");
  ApiOptions api{
      .model_name = options.name.empty() ? options.model : options.name,
      .default_tokens = options.max_tokens,
      .max_requests = options.max_requests,
      .answer_time = absl::Seconds(options.answer_timeout),
      .patience = absl::Seconds(options.peer_timeout),
      .allowed_hosts = options.allowed_hosts};
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(api.tokens,
                     TokenTable::Load({{.role = Role::kViewer,
                                        .key = "--token-file",
                                        .path = options.token_file}}));
  }
  ListenerOptions listener_options{
      .listen = options.listen,
      .connections = static_cast<int>(options.max_requests) +
                     ApiServer::kSpareConnections};
  if (!options.certificate.empty()) {
    auto tls = TlsServer::Create({.certificate = options.certificate,
                                  .private_key = options.private_key,
                                  .names = {.certificate = "--certificate",
                                            .private_key = "--private-key"}});
    if (!tls.ok()) return WithExitCode(tls.status(), ExitCode::kConfig);
    listener_options.tls = *std::move(tls);
  }
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  ASSIGN_OR_RETURN(
      const TextPipeline text,
      LoadTextPipeline(folder, ViewOptions{}, model.eos_token_ids.front()));
  api.vocab_size = model.vocab_size;
  api.max_positions = model.max_positions;
  // The address is taken first, so that a port in use costs no reading.
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpListener> opened,
                   HttpListener::Open(std::move(listener_options)));

  CatchStopRequests();
  std::unique_ptr<LocalWorker> local;
  std::vector<DeskWorker> workers;
  if (options.workers.empty()) {
    LocalWorkerOptions own{.model_folder = folder,
                           .device = options.device,
                           .slots = options.slots,
                           .kv_precision = options.kv_precision};
    ASSIGN_OR_RETURN(own.precision, PrecisionNamed(options.precision, folder));
    RETURN_IF_ERROR(CheckKvPrecision(options.kv_precision, own.precision));
    if (!options.adapter.empty()) {
      ASSIGN_OR_RETURN(own.adapter_folder, FindAdapterFolder(options.adapter));
    }
    ASSIGN_OR_RETURN(local, LocalWorker::Load(own, text.tokenizer->size()));
    workers.push_back({.name = "this process", .channel = local->Channel()});
  } else {
    ASSIGN_OR_RETURN(workers, DialWorkers(options));
  }
  WorkerDesk desk(
      std::move(workers),
      {.vocab_size = model.vocab_size, .hidden_size = model.hidden_size});
  HttpListener& listener = *opened;
  if (!options.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(options.port_file,
                                        absl::StrCat(listener.port(), "\n")));
  }
  ApiServer server(std::move(api), desk, text);
  server.AddTo(listener);
  listener.Start();
  LogInfo(absl::StrCat("listening on ",
                       options.certificate.empty() ? "http://" : "https://",
                       options.listen,
                       options.listen.ends_with(":0")
                           ? absl::StrCat(" (port ", listener.port(), ")")
                           : ""));
  while (StopRequests() == 0) absl::SleepFor(absl::Milliseconds(100));
  LogInfo("stopping; a second signal ends this at once");
  std::thread([] {
    while (StopRequests() < 2) absl::SleepFor(absl::Milliseconds(100));
    ::_exit(static_cast<int>(ExitCode::kInterrupted));
  }).detach();
  server.Stop(kStopGrace);
  listener.Stop();
  return absl::OkStatus();
}

}  // namespace

void AddServeCommand(Command& app) {
  auto options = std::make_shared<ServeOptions>();
  Command command = app.AddSubcommand(
      "serve", "Answers OpenAI's HTTP API by rollout workers or a model");
  command
      .AddOption("--model",
                 options->model,
                 "Hugging Face folder or id; with --workers only its tokenizer "
                 "and its chat template are read")
      .Path()
      .Required();
  command
      .AddOption(
          "--adapter", options->adapter, "PEFT folder or id, without --workers")
      .Path()
      .NotEmpty();
  command
      .AddOption("--precision",
                 options->precision,
                 "without --workers: float32, bfloat16, or auto: as the model "
                 "is stored")
      .OneOf({"float32", "bfloat16", "auto"})
      .ShowDefault();
  command
      .AddOption("--device",
                 EnumVariable(&options->device),
                 "without --workers: where the model is computed")
      .ShowDefault();
  command
      .AddOption("--slots",
                 options->slots,
                 "without --workers: answers decoded in parallel")
      .Range(1, 1024)
      .ShowDefault();
  command
      .AddOption("--kv-precision",
                 EnumVariable(&options->kv_precision),
                 "without --workers: precision of keys and values: as the "
                 "model, or float8, "
                 "which takes half of the memory and changes the answers a "
                 "little; for bfloat16 models")
      .ShowDefault();
  const CommandOption workers =
      command
          .AddOption("--workers",
                     options->workers,
                     "host:port,... of rollout workers; they answer with the "
                     "policy that their trainer gave them")
          .NotEmpty();
  AddSecurityOption(command, &options->security).Needs(workers);
  command
      .AddOption("--listen",
                 options->listen,
                 "host:port of the HTTP server; port 0: a free port")
      .NotEmpty()
      .ShowDefault();
  command
      .AddOption("--port-file", options->port_file, "file to write the port to")
      .NotEmpty();
  command
      .AddOption("--name",
                 options->name,
                 "name of the model in requests; default: --model")
      .NotEmpty();
  command
      .AddOption("--token-file",
                 options->token_file,
                 "file of mode 600 with the accepted API keys, one per line")
      .Path()
      .NotEmpty();
  const CommandOption certificate =
      command
          .AddOption("--certificate",
                     options->certificate,
                     "PEM file with the certificate of the HTTP server, then "
                     "its intermediates")
          .Path()
          .NotEmpty();
  command
      .AddOption("--private-key", options->private_key, "PEM file of mode 600")
      .Path()
      .NotEmpty()
      .Needs(certificate);
  command.AddFlag("--insecure",
                  options->insecure,
                  "lets other machines in without a token and TLS");
  command
      .AddOption("--allowed-host",
                 options->allowed_hosts,
                 "further name in the Host header, without --token-file")
      .TakeAll();
  command
      .AddOption("--max-tokens",
                 options->max_tokens,
                 "longest answer of a chat that does not say max_tokens")
      .Range(1, 1'000'000)
      .ShowDefault();
  command
      .AddOption("--max-requests",
                 options->max_requests,
                 "requests that are answered or wait; further ones get 429")
      .Range(1, 1024)
      .ShowDefault();
  command
      .AddOption("--answer-timeout",
                 options->answer_timeout,
                 "seconds that the answer to a request may take")
      .Range(1.0, 1e6)
      .ShowDefault();
  command
      .AddOption("--peer-timeout",
                 options->peer_timeout,
                 "seconds that a request waits while no worker can answer")
      .Range(0.001, 1e6)
      .ShowDefault();
  command.Does([options]() -> absl::Status {
    if (!options->workers.empty() && !options->adapter.empty()) {
      return WithExitCode(
          absl::InvalidArgumentError(
              "--adapter and --workers exclude each other: workers answer with "
              "the policy that their trainer gave them"),
          ExitCode::kUsage);
    }
    return Serve(*options);
  });
}

}  // namespace dapd
