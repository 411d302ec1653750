// Input: 1 byte, then the bytes of a client, cut into writes at zero bytes.
// Every request gets one well-formed answer, and pages only under a trusted
// name. If the first byte is odd, the client uses a socket, too, and the server
// then serves the next client.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/check.h"
#include "common/metrics/host_check.h"
#include "common/metrics/http_answer.h"
#include "common/metrics/http_responder.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr char kBody[] = "ok\n";
// http_responder.cc cuts a longer request off, too.
constexpr size_t kMaxRequestBytes = 8192;

const std::map<std::string, HttpPage>& Pages() {
  static const auto& pages = *[] {
    auto* made = new std::map<std::string, HttpPage>();
    (*made)["/healthz"].body = [] { return std::string(kBody); };
    (*made)["/metrics"].body = [] { return std::string("dapd_up 1\n"); };
    return made;
  }();
  return pages;
}

// libFuzzer detects hangs by an alarm, which would interrupt a waiting call.
void RestartInterruptedCalls() {
  struct sigaction alarm = {};
  ::sigaction(SIGALRM, nullptr, &alarm);
  alarm.sa_flags |= SA_RESTART;
  ::sigaction(SIGALRM, &alarm, nullptr);
}

HttpResponder& Responder() {
  static HttpResponder& responder = *[] {
    RestartInterruptedCalls();
    return HttpResponder::Start({"127.0.0.1:0", {}}, Pages()).value().release();
  }();
  return responder;
}

int Connect() {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(Responder().port()));
  Check(::connect(connection,
                  reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) == 0,
        "the responder takes connections");
  return connection;
}

// Sends the pieces, then waits for the whole answer.
std::string Exchange(const std::vector<std::string>& pieces) {
  const int connection = Connect();
  for (const std::string& piece : pieces) {
    // An early answer ends the connection.
    if (::send(connection, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
  }
  ::shutdown(connection, SHUT_WR);
  std::string answer;
  char block[4096];
  ssize_t count = 0;
  while ((count = ::recv(connection, block, sizeof(block), 0)) > 0) {
    answer.append(block, static_cast<size_t>(count));
  }
  ::close(connection);
  return answer;
}

void CheckAnswer(const std::string& answer) {
  Check(absl::StartsWith(answer, "HTTP/1.1 "), "the answer is HTTP");
  const size_t end = answer.find("\r\n\r\n");
  Check(end != std::string::npos, "the headers end");
  int code = 0;
  Check(
      absl::SimpleAtoi(answer.substr(9, 3), &code) && code >= 200 && code < 600,
      "there is a status");
  const std::string field = "\r\nContent-Length: ";
  const size_t at = answer.find(field);
  Check(at < end, "the length is told");
  const size_t length = static_cast<size_t>(
      std::strtoull(answer.c_str() + at + field.size(), nullptr, 10));
  const size_t body = answer.size() - end - 4;
  // An answer to HEAD has no body.
  Check(body == length || body == 0, "the body is as long as told");
}

// Returns whether a host has only letters, digits and other characters of a
// name or an address.
bool IsPlausibleHost(absl::string_view host) {
  return host.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyz"
             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789.:-_[]") == absl::string_view::npos;
}

void CheckTrust(const std::string& request, const std::string& answer) {
  if (!absl::StartsWith(answer, "HTTP/1.1 200")) return;
  const std::string head = request.substr(0, request.find("\r\n\r\n"));
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (!absl::EqualsIgnoreCase(header.first, "host")) continue;
    const absl::string_view host = absl::StripAsciiWhitespace(header.second);
    Check(IsTrustedHost(host, {}) && IsPlausibleHost(host),
          "a page is only shown under a trusted name");
  }
}

void CheckSocket(const std::vector<std::string>& pieces,
                 const std::string& request,
                 const std::string& expected) {
  const std::string answer = Exchange(pieces);
  if (request.size() <= kMaxRequestBytes) {
    const bool whole = absl::StrContains(request, "\r\n\r\n");
    Check(answer == (whole ? expected : ""), "a socket gets the same answer");
  }
  const std::string next =
      Exchange({"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"});
  Check(absl::StartsWith(next, "HTTP/1.1 200") && absl::EndsWith(next, kBody),
        "the next client is served");
}

void Run(InputReader input) {
  const bool through_socket = input.Byte() % 2 == 1;
  std::vector<std::string> pieces;
  while (!input.empty()) pieces.push_back(input.Text());
  const std::string request = absl::StrJoin(pieces, "");
  const std::string answer = AnswerHttp(request, Pages(), {});
  CheckAnswer(answer);
  CheckTrust(request, answer);
  if (through_socket) CheckSocket(pieces, request, answer);
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
