// Defines owners of OpenSSL objects.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

template <auto kFree>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPointer = std::unique_ptr<BIO, OpenSslFree<BIO_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;
using SslPointer = std::unique_ptr<SSL, OpenSslFree<SSL_free>>;
using SslContextPointer = std::unique_ptr<SSL_CTX, OpenSslFree<SSL_CTX_free>>;
using X509Pointer = std::unique_ptr<X509, OpenSslFree<X509_free>>;
using X509StorePointer =
    std::unique_ptr<X509_STORE, OpenSslFree<X509_STORE_free>>;
using X509ContextPointer =
    std::unique_ptr<X509_STORE_CTX, OpenSslFree<X509_STORE_CTX_free>>;

// `text` must outlive the result.
BioPointer ReadFromMemory(absl::string_view text);

// Returns the thread's newest OpenSSL error as text, and clears all of its
// errors.
std::string TakeOpenSslError();

}  // namespace dapd
