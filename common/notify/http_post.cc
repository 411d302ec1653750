#include "common/notify/http_post.h"

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
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/config/notify_url.h"
#include "common/security/certificate.h"
#include "common/security/secret_file.h"

namespace dapd {
namespace {

constexpr absl::string_view kRetryAfterPayload = "dapd.http.retry_after";

// A system's whole bundle of authorities takes a fifth of a MiB.
constexpr uint64_t kMaxAuthoritiesBytes = 16 << 20;

// RFC 9110, section 5.6.2, defines these names.
bool IsFieldName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("!#$%&'*+-.^_`|~", c);
  });
}

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// The body of an answer.
struct Answer {
  const PostLimits& limits;
  size_t size = 0;
  std::string bytes;  // empty unless limits.keeps_answer
};

// Ends the transfer of an answer that is too long.
size_t TakeAnswer(char* bytes, size_t size, size_t count, void* taken) {
  Answer& answer = *static_cast<Answer*>(taken);
  answer.size += size * count;
  if (answer.size > answer.limits.max_answer_bytes) return 0;
  if (answer.limits.keeps_answer) answer.bytes.append(bytes, size * count);
  return size * count;
}

int AskWhetherToGiveUp(void* gives_up,
                       curl_off_t /*download_total*/,
                       curl_off_t /*downloaded*/,
                       curl_off_t /*upload_total*/,
                       curl_off_t /*uploaded*/) {
  return (*static_cast<const std::function<bool()>*>(gives_up))() ? 1 : 0;
}

absl::Status Judge(CURLcode code,
                   long http_status,
                   const std::string& place,
                   const PostLimits& limits) {
  if (http_status >= 200 && http_status < 300 &&
      (code == CURLE_OK || !limits.keeps_answer)) {
    return absl::OkStatus();
  }
  // libcurl's code if a write callback takes less than it gets.
  if (code == CURLE_WRITE_ERROR && limits.keeps_answer) {
    return absl::ResourceExhaustedError(absl::StrCat(
        place, " answered with more than ", limits.max_answer_bytes, " bytes"));
  }
  if (http_status >= 300 || (http_status >= 100 && http_status < 200)) {
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

// Notes the header Retry-After of an answer at its error.
absl::Status NoteRetryAfter(absl::Status status, CURL* answered) {
  curl_off_t seconds = 0;  // 0: there is none
  curl_easy_getinfo(answered, CURLINFO_RETRY_AFTER, &seconds);
  if (absl::IsUnavailable(status) && seconds > 0) {
    status.SetPayload(kRetryAfterPayload, absl::Cord(absl::StrCat(seconds)));
  }
  return status;
}

long Milliseconds(absl::Duration duration) {
  return static_cast<long>(
      std::max<int64_t>(absl::ToInt64Milliseconds(duration), 1));
}

// Returns the header of a secret file: its line, or "Authorization: Bearer" and
// the line if that is a token. Returns an error for an invalid header, too.
absl::StatusOr<std::string> ReadPostHeader(const std::string& key,
                                           const std::string& path) {
  ASSIGN_OR_RETURN(const std::string line, ReadSecretLine(key, path));
  const size_t colon = line.find(':');
  if (colon == std::string::npos && !absl::StrContains(line, ' ')) {
    return absl::StrCat("Authorization: Bearer ", line);
  }
  if (colon == std::string::npos || colon + 1 == line.size() ||
      !IsFieldName(absl::string_view(line).substr(0, colon))) {
    return ConfigError(absl::StrCat(
        key, ": the file holds neither a token nor a header (Name: value)"));
  }
  return line;
}

// Checks that a file holds certificate authorities. libcurl would report an
// unusable file only at the first request.
absl::Status CheckAuthorities(const std::string& key, const std::string& path) {
  const auto pem = ReadFile(path, kMaxAuthoritiesBytes);
  if (!pem.ok()) {
    return ConfigError(
        absl::StrCat(key, ": ", std::string(pem.status().message())));
  }
  if (!ParseCertificate(*pem).ok()) {
    return ConfigError(
        absl::StrCat(key, ": ", path, " holds no certificate in PEM form"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PostOnce(const HttpTarget& target,
                                     const std::string& json,
                                     const PostLimits& limits,
                                     const std::function<bool()>& gives_up) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) {
    return absl::InternalError(absl::StrCat("libcurl cannot be initialized: ",
                                            curl_easy_strerror(ready)));
  }
  // A broken connection must be an error like any other.
  std::signal(SIGPIPE, SIG_IGN);
  const std::unique_ptr<CURL, CurlDeleter> handle(curl_easy_init());
  if (handle == nullptr) {
    return absl::ResourceExhaustedError("cannot make an HTTP client");
  }
  std::unique_ptr<curl_slist, CurlDeleter> headers;
  for (const std::string& header :
       {std::string("Content-Type: application/json"),
        std::string("Expect:"),  // no question whether to send so little
        target.header}) {
    if (header.empty()) continue;
    curl_slist* longer = curl_slist_append(headers.get(), header.c_str());
    if (longer == nullptr) {
      return absl::ResourceExhaustedError("cannot make an HTTP request");
    }
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  Answer answer{.limits = limits};
  CURL* const curl = handle.get();
  const auto set = [curl](CURLoption option, auto value) {
    return curl_easy_setopt(curl, option, value) == CURLE_OK;
  };
  const bool is_set =
      set(CURLOPT_URL, target.url.c_str()) &&
      set(CURLOPT_PROTOCOLS_STR, "http,https") && set(CURLOPT_POST, 1L) &&
      set(CURLOPT_POSTFIELDS, json.c_str()) &&
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size())) &&
      set(CURLOPT_HTTPHEADER, headers.get()) &&
      set(CURLOPT_USERAGENT, "dapd") &&
      set(CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(limits.connect_timeout)) &&
      set(CURLOPT_TIMEOUT_MS, Milliseconds(limits.timeout)) &&
      set(CURLOPT_NOSIGNAL, 1L) &&
      // libcurl does not wait for a name server that hangs, either.
      set(CURLOPT_QUICK_EXIT, 1L) && set(CURLOPT_WRITEFUNCTION, &TakeAnswer) &&
      set(CURLOPT_WRITEDATA, static_cast<void*>(&answer)) &&
      set(CURLOPT_NOPROGRESS, 0L) &&
      set(CURLOPT_XFERINFOFUNCTION, &AskWhetherToGiveUp) &&
      set(CURLOPT_XFERINFODATA,
          const_cast<void*>(static_cast<const void*>(&gives_up))) &&
      (!IsOnLoopback(target.url) || set(CURLOPT_PROXY, "")) &&
      (target.ca_file.empty() || set(CURLOPT_CAINFO, target.ca_file.c_str()));
  if (!is_set) {
    return absl::InternalError("libcurl does not accept the request's options");
  }
  const CURLcode code = curl_easy_perform(curl);
  long http_status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http_status);
  RETURN_IF_ERROR(NoteRetryAfter(
      NameProxy(Judge(code, http_status, NotifyPlace(target.url), limits),
                target.url),
      curl));
  return std::move(answer.bytes);
}

absl::StatusOr<std::string> ReadSecretLine(const std::string& key,
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

absl::StatusOr<HttpTarget> LoadHttpTarget(const std::string& keys,
                                          const std::string& url,
                                          const std::string& secret_file,
                                          const std::string& ca_file) {
  HttpTarget target{.url = url, .ca_file = ca_file};
  if (!secret_file.empty()) {
    ASSIGN_OR_RETURN(
        target.header,
        ReadPostHeader(absl::StrCat(keys, "secret_file"), secret_file));
  }
  if (!ca_file.empty()) {
    RETURN_IF_ERROR(CheckAuthorities(absl::StrCat(keys, "ca_file"), ca_file));
  }
  return target;
}

bool IsPassingPostError(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  int64_t seconds = 0;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &seconds)) {
    return std::nullopt;
  }
  return absl::Seconds(seconds);
}

}  // namespace dapd
