#include "common/security/token.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kMinLength = 32;
constexpr size_t kMaxLength = 512;
constexpr absl::string_view kScheme = "bearer ";

bool IsToken(absl::string_view text) {
  return text.size() >= kMinLength && text.size() <= kMaxLength &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains("-._~+/=", c);
         });
}

absl::StatusOr<std::vector<std::string>> ParseTokens(const std::string& key,
                                                     absl::string_view bytes) {
  std::vector<std::string> tokens;
  for (absl::string_view line : absl::StrSplit(bytes, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (!IsToken(line)) {
      return ConfigError(absl::StrCat(
          key,
          ": line ",
          tokens.size() + 1,
          " of the file is not a token of ",
          kMinLength,
          " to ",
          kMaxLength,
          " characters A-Z a-z 0-9 - . _ ~ + / =; make one with: openssl rand "
          "-hex 32"));
    }
    tokens.emplace_back(line);
  }
  if (tokens.empty()) {
    return ConfigError(absl::StrCat(key, ": the file holds no token"));
  }
  return tokens;
}

}  // namespace

absl::string_view ParseBearer(absl::string_view header) {
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return "";
  return absl::StripAsciiWhitespace(header.substr(kScheme.size()));
}

absl::StatusOr<std::unique_ptr<TokenTable>> TokenTable::Load(
    const std::vector<Entry>& entries) {
  auto table = std::unique_ptr<TokenTable>(new TokenTable());
  for (const Entry& entry : entries) {
    ASSIGN_OR_RETURN(auto secret, SecretFile::Open(entry.key, entry.path));
    RETURN_IF_ERROR(ParseTokens(entry.key, *secret->Get()).status());
    table->files_.push_back(
        {entry.role, entry.key, std::move(secret), nullptr});
  }
  return table;
}

void TokenTable::Refresh() {
  bool has_changed = false;
  for (File& file : files_) {
    SecretFile::Bytes bytes = file.secret->Get();
    has_changed = has_changed || bytes != file.parsed;
    file.parsed = std::move(bytes);
  }
  if (!has_changed) return;
  accepted_.clear();
  for (const File& file : files_) {
    const auto tokens = ParseTokens(file.key, *file.parsed);
    if (!tokens.ok()) {
      LogWarning(absl::StrCat(std::string(tokens.status().message()),
                              "; no token in it is accepted"));
      continue;
    }
    for (const std::string& token : *tokens) {
      accepted_.push_back({Sha256Hex(token), file.role});
    }
  }
}

RoleSet TokenTable::Find(absl::string_view token) {
  const std::string digest = Sha256Hex(token);
  RoleSet roles;
  MutexLock lock(&mutex_);
  Refresh();
  for (const Accepted& accepted : accepted_) {
    const bool is_same =
        CRYPTO_memcmp(digest.data(), accepted.digest.data(), digest.size()) ==
        0;
    roles.Add(is_same ? RoleSet{accepted.role} : RoleSet{});
  }
  return roles;
}

absl::StatusOr<std::unique_ptr<PresentedToken>> PresentedToken::Load(
    const std::string& key, const std::string& path) {
  ASSIGN_OR_RETURN(auto secret, SecretFile::Open(key, path));
  RETURN_IF_ERROR(ParseTokens(key, *secret->Get()).status());
  return std::unique_ptr<PresentedToken>(new PresentedToken(std::move(secret)));
}

std::string PresentedToken::Get() {
  const auto tokens = ParseTokens("security.token", *secret_->Get());
  return tokens.ok() ? tokens->front() : "";
}

}  // namespace dapd
