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
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(bytes, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    if (!IsToken(line)) {
      return ConfigError(absl::StrCat(
          key,
          ": line ",
          number,
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

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& key,
                                          const std::string& path) {
  ASSIGN_OR_RETURN(auto secret, SecretFile::Open(key, path));
  TokenFile file(key, std::move(secret));
  RETURN_IF_ERROR(file.ReadIfChanged());
  return file;
}

absl::Status TokenFile::ReadIfChanged() {
  SecretFile::Bytes bytes = secret_->Get();
  if (bytes == read_) return absl::OkStatus();
  read_ = std::move(bytes);
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   ParseTokens(key_, *read_));
  tokens_.clear();
  for (const std::string& text : texts) {
    tokens_.push_back({text, Sha256Hex(text)});
  }
  return absl::OkStatus();
}

const std::vector<TokenFile::Token>& TokenFile::Get() {
  const absl::Status read = ReadIfChanged();
  if (!read.ok()) {
    LogWarning(absl::StrCat(std::string(read.message()),
                            "; its previous content stays in effect"));
  }
  return tokens_;
}

absl::StatusOr<std::unique_ptr<TokenTable>> TokenTable::Load(
    const std::vector<Entry>& entries) {
  auto table = std::unique_ptr<TokenTable>(new TokenTable());
  for (const Entry& entry : entries) {
    ASSIGN_OR_RETURN(TokenFile tokens, TokenFile::Open(entry.key, entry.path));
    table->files_.push_back({entry.role, std::move(tokens)});
  }
  return table;
}

RoleSet TokenTable::Find(absl::string_view token) {
  const std::string digest = Sha256Hex(token);
  RoleSet roles;
  MutexLock lock(&mutex_);
  for (File& file : files_) {
    for (const TokenFile::Token& accepted : file.tokens.Get()) {
      const bool is_same =
          CRYPTO_memcmp(digest.data(), accepted.digest.data(), digest.size()) ==
          0;
      roles.Add(is_same ? RoleSet{file.role} : RoleSet{});
    }
  }
  return roles;
}

absl::StatusOr<std::unique_ptr<PresentedToken>> PresentedToken::Load(
    const std::string& key, const std::string& path) {
  ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(key, path));
  return std::unique_ptr<PresentedToken>(new PresentedToken(std::move(file)));
}

std::string PresentedToken::Get() {
  MutexLock lock(&mutex_);
  return file_.Get().front().text;
}

}  // namespace dapd
