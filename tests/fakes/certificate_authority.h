// Implements a private certificate authority in memory for tests of TLS.
#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/config.h"
#include "common/security/openssl_pointers.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

struct IssuedCertificate {
  std::string certificate;  // PEM
  std::string private_key;  // PEM
};

class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name)
      : key_(EVP_EC_gen("P-256")) {
    certificate_ = Sign(key_.get(), name, "", absl::Hours(24), "CA:TRUE", "");
  }

  std::string pem() const { return ToPem(certificate_.get()); }

  // `names` are written as OpenSSL's subject alternative names,
  // "URI:spiffe://dapd/rollout,DNS:localhost,IP:127.0.0.1". `usages` are
  // extended key usages, "serverAuth,clientAuth"; empty allows any use.
  IssuedCertificate Issue(
      const std::string& names,
      absl::Duration lifetime = absl::Hours(1),
      const std::string& usages = "",
      const KeyPointer& key = KeyPointer(EVP_EC_gen("P-256"))) const {
    const X509Pointer certificate =
        Sign(key.get(), "leaf", names, lifetime, "CA:FALSE", usages);
    const BioPointer bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_PrivateKey(
        bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return {ToPem(certificate.get()), Contents(bio.get())};
  }

 private:
  static std::string Contents(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return std::string(data, static_cast<size_t>(size));
  }

  static std::string ToPem(X509* certificate) {
    const BioPointer bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(bio.get(), certificate);
    return Contents(bio.get());
  }

  static void Extend(X509* certificate,
                     X509* issuer,
                     int nid,
                     const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension =
        X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
    ASSERT_NE(extension, nullptr) << value;
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }

  X509Pointer Sign(EVP_PKEY* key,
                   const std::string& common_name,
                   const std::string& names,
                   absl::Duration lifetime,
                   const std::string& constraints,
                   const std::string& usages) const {
    static long serial = 1;
    X509Pointer certificate(X509_new());
    X509* issuer =
        certificate_ == nullptr ? certificate.get() : certificate_.get();
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
    const long seconds = absl::ToInt64Seconds(lifetime);
    // An expired certificate was valid before.
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()),
                    seconds < 0 ? seconds - 3600 : -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), seconds);
    X509_set_pubkey(certificate.get(), key);
    X509_NAME_add_entry_by_txt(
        X509_get_subject_name(certificate.get()),
        "CN",
        MBSTRING_ASC,
        reinterpret_cast<const unsigned char*>(common_name.c_str()),
        -1,
        -1,
        0);
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
    Extend(certificate.get(), issuer, NID_basic_constraints, constraints);
    if (!names.empty()) {
      Extend(certificate.get(), issuer, NID_subject_alt_name, names);
    }
    if (!usages.empty()) {
      Extend(certificate.get(), issuer, NID_ext_key_usage, usages);
    }
    X509_sign(certificate.get(), key_.get(), EVP_sha256());
    return certificate;
  }

  const KeyPointer key_;
  X509Pointer certificate_;
};

inline void WriteSecret(const std::string& path, const std::string& bytes) {
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
}

// Returns the section `security` of a process with this certificate; writes its
// files into a folder of the running test.
inline SecuritySection WriteIdentity(const std::string& name,
                                     const IssuedCertificate& issued,
                                     const std::string& authorities) {
  SecuritySection section;
  section.certificate = TempPath(name + ".crt");
  section.private_key = TempPath(name + ".key");
  section.ca = TempPath(name + ".ca");
  EXPECT_TRUE(
      WriteFileAtomically(section.certificate, issued.certificate).ok());
  EXPECT_TRUE(WriteFileAtomically(section.ca, authorities).ok());
  WriteSecret(section.private_key, issued.private_key);
  return section;
}

}  // namespace dapd
