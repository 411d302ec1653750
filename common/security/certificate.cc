#include "common/security/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <array>
#include <memory>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/security/openssl_pointers.h"
#include "common/security/secret_file.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;

// A key with a passphrase must not make a service ask on its terminal.
int RefusePassphrase(char*, int, int, void*) { return -1; }

absl::Status PemError(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " (", TakeOpenSslError(), ")"));
}

std::vector<X509Pointer> ParseAll(absl::string_view pem) {
  std::vector<X509Pointer> certificates;
  const BioPointer bio = ReadFromMemory(pem);
  while (X509* next =
             PEM_read_bio_X509(bio.get(), nullptr, RefusePassphrase, nullptr)) {
    certificates.emplace_back(next);
  }
  ERR_clear_error();  // the end of the text is an error, too
  return certificates;
}

// `key` names the file in messages.
absl::StatusOr<std::vector<X509Pointer>> ReadAll(const std::string& key,
                                                 const std::string& path) {
  const auto pem = ReadFile(path, kMaxPemBytes);
  if (!pem.ok()) {
    return absl::Status(
        pem.status().code(),
        absl::StrCat(key, ": ", std::string(pem.status().message())));
  }
  std::vector<X509Pointer> certificates = ParseAll(*pem);
  if (certificates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", path, " holds no certificate in PEM form"));
  }
  return certificates;
}

std::vector<std::string> UriNames(X509* certificate) {
  std::vector<std::string> uris;
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  const absl::Cleanup free_names = [names] { GENERAL_NAMES_free(names); };
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

absl::Time ToTime(const ASN1_TIME* asn1) {
  tm parts = {};
  if (ASN1_TIME_to_tm(asn1, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// Returns the type of `key` in OpenSSL's words: "RSA", "EC secp256k1".
std::string KindOf(EVP_PKEY* key) {
  std::string kind(absl::NullSafeStringView(EVP_PKEY_get0_type_name(key)));
  std::array<char, 64> curve = {};
  if (EVP_PKEY_get_group_name(key, curve.data(), curve.size(), nullptr) == 1) {
    absl::StrAppend(&kind, " ", curve.data());
  }
  return kind;
}

// Two processes of DAPD agree on TLS 1.3, and OpenSSL signs its handshake only
// with these kinds of keys. It accepts more kinds in certificates.
absl::Status CheckKind(const std::string& path, EVP_PKEY* key) {
  static const auto& kinds = *new std::set<std::string>{"EC prime256v1",
                                                        "EC secp384r1",
                                                        "EC secp521r1",
                                                        "ED25519",
                                                        "ED448",
                                                        "RSA",
                                                        "RSA-PSS"};
  const std::string kind = KindOf(key);
  if (kinds.contains(kind)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the key of the certificate in ",
      path,
      " is ",
      kind,
      ", with which TLS does not sign a handshake; peers would refuse it: make "
      "a certificate for an EC key on P-256, P-384 "
      "or P-521, an Ed25519 key, or an RSA key"));
}

absl::Status CheckKey(const IdentityPaths& paths, X509* certificate) {
  ASSIGN_OR_RETURN(const std::string pem,
                   ReadSecretFile(paths.names.private_key, paths.private_key));
  const BioPointer bio = ReadFromMemory(pem);
  const KeyPointer key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, RefusePassphrase, nullptr));
  if (key == nullptr) {
    return PemError(absl::StrCat(paths.private_key,
                                 " holds no private key in PEM form without a "
                                 "passphrase"));
  }
  if (X509_check_private_key(certificate, key.get()) != 1) {
    return PemError(absl::StrCat(paths.private_key,
                                 " is not the key of the certificate in ",
                                 paths.certificate));
  }
  return CheckKind(paths.certificate, key.get());
}

absl::Status CheckDates(const std::string& path,
                        X509* certificate,
                        absl::Time now) {
  const Certificate described = DescribeCertificate(certificate);
  if (now >= described.not_before && now <= described.not_after) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate in ",
                   path,
                   " is valid from ",
                   absl::FormatTime(described.not_before, absl::UTCTimeZone()),
                   " to ",
                   absl::FormatTime(described.not_after, absl::UTCTimeZone()),
                   " only; peers would refuse it"));
}

int PurposeOf(TlsEnd end) {
  return end == TlsEnd::kServer ? X509_PURPOSE_SSL_SERVER
                                : X509_PURPOSE_SSL_CLIENT;
}

const char* NeededUsage(TlsEnd end) {
  return end == TlsEnd::kServer ? " (a process that listens needs the extended "
                                  "key usage serverAuth)"
                                : " (a process that connects needs the "
                                  "extended key usage clientAuth)";
}

}  // namespace

BioPointer ReadFromMemory(absl::string_view text) {
  return BioPointer(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TakeOpenSslError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "no further reason";
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? absl::StrCat("OpenSSL error ", code) : reason;
}

Certificate DescribeCertificate(x509_st* certificate) {
  return {.roles = RolesOfUris(UriNames(certificate)),
          .not_before = ToTime(X509_get0_notBefore(certificate)),
          .not_after = ToTime(X509_get0_notAfter(certificate))};
}

absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem) {
  const std::vector<X509Pointer> all = ParseAll(pem);
  if (all.empty()) {
    return absl::InvalidArgumentError("no certificate in PEM form");
  }
  return DescribeCertificate(all.front().get());
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<X509Pointer> all,
                   ReadAll(IdentityNames().certificate, path));
  return DescribeCertificate(all.front().get());
}

absl::Status CheckIdentity(const IdentityPaths& paths,
                           TlsEnd end,
                           absl::Time now) {
  ASSIGN_OR_RETURN(const std::vector<X509Pointer> chain,
                   ReadAll(paths.names.certificate, paths.certificate));
  X509* own = chain.front().get();
  RETURN_IF_ERROR(CheckKey(paths, own));
  if (paths.ca.empty()) return CheckDates(paths.certificate, own, now);
  ASSIGN_OR_RETURN(const std::vector<X509Pointer> authorities,
                   ReadAll(paths.names.ca, paths.ca));

  const X509StorePointer store(X509_STORE_new());
  for (const X509Pointer& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  STACK_OF(X509)* intermediates = sk_X509_new_null();
  const absl::Cleanup free_stack = [&] { sk_X509_free(intermediates); };
  for (size_t i = 1; i < chain.size(); ++i) {
    sk_X509_push(intermediates, chain[i].get());
  }
  const X509ContextPointer context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), own, intermediates);
  // The peer's handshake checks this purpose, too.
  X509_STORE_CTX_set_purpose(context.get(), PurposeOf(end));
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  // The security level of TLS refuses weak keys and digests.
  const SslContextPointer tls(SSL_CTX_new(TLS_method()));
  X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(context.get()),
                                   SSL_CTX_get_security_level(tls.get()));
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    return absl::InvalidArgumentError(absl::StrCat(
        "the authorities in ",
        paths.ca,
        " do not vouch for the certificate in ",
        paths.certificate,
        ": ",
        X509_verify_cert_error_string(error),
        error == X509_V_ERR_INVALID_PURPOSE ? NeededUsage(end) : "",
        "; peers would refuse it"));
  }
  return absl::OkStatus();
}

}  // namespace dapd
