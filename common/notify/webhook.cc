#include "common/notify/webhook.h"

#include <curl/curl.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/config/notify_url.h"
#include "common/security/certificate.h"
#include "common/security/secret_file.h"

namespace dapd {
namespace {

constexpr int kAttempts = 3;
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);
constexpr size_t kMaxAnswerBytes = 64 << 10;
// A system's whole bundle of authorities takes a fifth of a MiB.
constexpr uint64_t kMaxAuthoritiesBytes = 16 << 20;

// The following functions load a webhook.

// Returns the only line of a secret file, without surrounding white space.
absl::StatusOr<std::string> ReadLine(const std::string& key,
                                     const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadSecretFile(key, path));
  const absl::string_view line = absl::StripAsciiWhitespace(bytes);
  const bool is_line = std::all_of(line.begin(), line.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  if (line.empty() || !is_line) {
    return ConfigError(absl::StrCat(
        key, ": the file must contain one line of printable ASCII"));
  }
  return std::string(line);
}

// RFC 9110, section 5.6.2, defines these names.
bool IsFieldName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("!#$%&'*+-.^_`|~", c);
  });
}

absl::StatusOr<std::string> ReadHeader(const std::string& path) {
  constexpr char kKey[] = "run.notify_secret_file";
  ASSIGN_OR_RETURN(const std::string line, ReadLine(kKey, path));
  const size_t colon = line.find(':');
  if (colon == std::string::npos && !absl::StrContains(line, ' ')) {
    return absl::StrCat("Authorization: Bearer ", line);
  }
  if (colon == std::string::npos || colon + 1 == line.size() ||
      !IsFieldName(absl::string_view(line).substr(0, colon))) {
    return ConfigError(absl::StrCat(
        kKey, ": the file holds neither a token nor a header (Name: value)"));
  }
  return line;
}

// libcurl would report an unusable file only at the end of the run.
absl::Status CheckAuthorities(const std::string& path) {
  constexpr char kKey[] = "run.notify_ca_file: ";
  const auto pem = ReadFile(path, kMaxAuthoritiesBytes);
  if (!pem.ok()) {
    return ConfigError(absl::StrCat(kKey, std::string(pem.status().message())));
  }
  if (!ParseCertificate(*pem).ok()) {
    return ConfigError(
        absl::StrCat(kKey, path, " holds no certificate in PEM form"));
  }
  return absl::OkStatus();
}

// The following functions make one attempt.

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Ends the transfer of an endless answer.
size_t CountAnswer(char* /*bytes*/, size_t size, size_t count, void* total) {
  size_t& bytes = *static_cast<size_t*>(total);
  bytes += size * count;
  return bytes > kMaxAnswerBytes ? 0 : size * count;
}

int AskWhetherToGiveUp(void* gives_up,
                       curl_off_t /*download_total*/,
                       curl_off_t /*downloaded*/,
                       curl_off_t /*upload_total*/,
                       curl_off_t /*uploaded*/) {
  return (*static_cast<const std::function<bool()>*>(gives_up))() ? 1 : 0;
}

absl::Status Judge(CURLcode code, long http_status, const std::string& place) {
  // When the head of the answer arrives, the server has the document.
  if (http_status >= 200 && http_status < 300) return absl::OkStatus();
  if (http_status >= 100) {
    const std::string said =
        absl::StrCat(place, " answered with HTTP status ", http_status);
    if (http_status == 408 || http_status == 429 || http_status >= 500) {
      return absl::UnavailableError(said);
    }
    return absl::InvalidArgumentError(
        http_status >= 300 && http_status < 400
            ? absl::StrCat(said, ", a redirection, which is not followed")
            : said);
  }
  const std::string why = absl::StrCat(place, ": ", curl_easy_strerror(code));
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::CancelledError(absl::StrCat(place, ": abandoned"));
    case CURLE_OPERATION_TIMEDOUT:
      return absl::DeadlineExceededError(
          absl::StrCat(place, " did not answer in time"));
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::InvalidArgumentError(why);
    default:
      return absl::UnavailableError(why);
  }
}

// Returns the environment variable that names a proxy for `url`, by libcurl's
// rules, with its value; nothing if no variable does.
std::optional<std::pair<std::string, std::string>> ProxyFor(
    const std::string& url) {
  if (IsOnLoopback(url)) return std::nullopt;
  const std::vector<const char*> of_http = {"http_proxy"};
  const std::vector<const char*> of_https = {"https_proxy", "HTTPS_PROXY"};
  std::vector<const char*> names =
      absl::StartsWithIgnoreCase(url, "https:") ? of_https : of_http;
  names.insert(names.end(), {"all_proxy", "ALL_PROXY"});
  for (const char* name : names) {
    const char* proxy = std::getenv(name);
    if (proxy != nullptr && *proxy != '\0') return {{name, proxy}};
  }
  return std::nullopt;
}

// Adds the proxy to the error, since the error may be the proxy's and libcurl
// does not say so.
absl::Status NameProxy(absl::Status status, const std::string& url) {
  const auto proxy = ProxyFor(url);
  if (status.ok() || !proxy.has_value()) return status;
  // The address may contain a password.
  const std::string& address = proxy->second;
  const size_t at = address.rfind('@');
  return {
      status.code(),
      absl::StrCat(std::string(status.message()),
                   " (",
                   proxy->first,
                   " names the proxy ",
                   at == std::string::npos ? address : address.substr(at + 1),
                   ", which must lead there; no_proxy names hosts to reach "
                   "without it)")};
}

long Milliseconds(absl::Duration duration) {
  return static_cast<long>(
      std::max<int64_t>(absl::ToInt64Milliseconds(duration), 1));
}

absl::Status PostOnce(const Webhook& webhook,
                      const std::string& json,
                      absl::Duration connect_timeout,
                      absl::Duration timeout,
                      const std::function<bool()>& gives_up) {
  const std::unique_ptr<CURL, CurlDeleter> handle(curl_easy_init());
  if (handle == nullptr) {
    return absl::ResourceExhaustedError("cannot make an HTTP client");
  }
  std::unique_ptr<curl_slist, CurlDeleter> headers;
  for (const std::string& header :
       {std::string("Content-Type: application/json"),
        std::string("Expect:"),  // no question whether to send so little
        webhook.header}) {
    if (header.empty()) continue;
    curl_slist* longer = curl_slist_append(headers.get(), header.c_str());
    if (longer == nullptr) {
      return absl::ResourceExhaustedError("cannot make an HTTP request");
    }
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  size_t answer_bytes = 0;
  CURL* const curl = handle.get();
  const auto set = [curl](CURLoption option, auto value) {
    return curl_easy_setopt(curl, option, value) == CURLE_OK;
  };
  const bool is_set =
      set(CURLOPT_URL, webhook.url.c_str()) &&
      set(CURLOPT_PROTOCOLS_STR, "http,https") && set(CURLOPT_POST, 1L) &&
      set(CURLOPT_POSTFIELDS, json.c_str()) &&
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size())) &&
      set(CURLOPT_HTTPHEADER, headers.get()) &&
      set(CURLOPT_USERAGENT, "dapd") &&
      set(CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(connect_timeout)) &&
      set(CURLOPT_TIMEOUT_MS, Milliseconds(timeout)) &&
      set(CURLOPT_NOSIGNAL, 1L) &&
      // libcurl does not wait for a name server that hangs, either.
      set(CURLOPT_QUICK_EXIT, 1L) && set(CURLOPT_WRITEFUNCTION, &CountAnswer) &&
      set(CURLOPT_WRITEDATA, static_cast<void*>(&answer_bytes)) &&
      set(CURLOPT_NOPROGRESS, 0L) &&
      set(CURLOPT_XFERINFOFUNCTION, &AskWhetherToGiveUp) &&
      set(CURLOPT_XFERINFODATA,
          const_cast<void*>(static_cast<const void*>(&gives_up))) &&
      (!IsOnLoopback(webhook.url) || set(CURLOPT_PROXY, "")) &&
      (webhook.ca_file.empty() || set(CURLOPT_CAINFO, webhook.ca_file.c_str()));
  if (!is_set) {
    return absl::InternalError("libcurl does not accept the request's options");
  }
  const CURLcode code = curl_easy_perform(curl);
  long http_status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
  return NameProxy(Judge(code, http_status, NotifyPlace(webhook.url)),
                   webhook.url);
}

}  // namespace

absl::StatusOr<Webhook> LoadWebhook(const RunConfig& run) {
  Webhook webhook{.url = run.notify_url,
                  .ca_file = run.notify_ca_file,
                  .timeout = absl::Seconds(run.notify_timeout_seconds)};
  absl::string_view file = run.notify_url;
  if (absl::ConsumePrefix(&file, kUrlFilePrefix)) {
    ASSIGN_OR_RETURN(webhook.url,
                     ReadLine("run.notify_url", std::string(file)));
    const std::string problem =
        ProblemWithNotifyUrl(webhook.url, !run.notify_secret_file.empty());
    if (!problem.empty()) {
      return ConfigError(
          absl::StrCat("run.notify_url: the file's content ", problem));
    }
  }
  if (!run.notify_secret_file.empty()) {
    ASSIGN_OR_RETURN(webhook.header, ReadHeader(run.notify_secret_file));
  }
  if (!run.notify_ca_file.empty()) {
    RETURN_IF_ERROR(CheckAuthorities(run.notify_ca_file));
  }
  return webhook;
}

absl::Status PostJson(const Webhook& webhook,
                      const std::string& json,
                      const std::function<bool()>& gives_up) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) {
    return absl::InternalError(absl::StrCat("libcurl cannot be initialized: ",
                                            curl_easy_strerror(ready)));
  }
  // A broken connection must be an error like any other.
  std::signal(SIGPIPE, SIG_IGN);
  const absl::Time deadline = SteadyNow() + webhook.timeout;
  absl::Status last = absl::DeadlineExceededError(
      absl::StrCat("no time left to reach ", NotifyPlace(webhook.url)));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (gives_up()) return absl::CancelledError("abandoned");
    // A connection that cannot be made leaves time for further attempts. A
    // server that has the document may be slow, and is waited for: otherwise it
    // would get the document again.
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    last =
        PostOnce(webhook, json, left / (kAttempts - attempt), left, gives_up);
    if (last.ok() ||
        !(absl::IsUnavailable(last) || absl::IsDeadlineExceeded(last))) {
      return last;
    }
    if (attempt + 1 == kAttempts) break;
    const absl::Time again =
        std::min(deadline, SteadyNow() + kFirstPause * (1 << attempt));
    while (SteadyNow() < again && !gives_up()) absl::SleepFor(kLookInterval);
  }
  return last;
}

}  // namespace dapd
