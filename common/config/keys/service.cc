#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> MetricsKeys(Config& c) {
  return {
      Text("metrics.rollout_listen",
           &c.metrics.rollout_listen,
           "Address of the Prometheus endpoint of a rollout worker, as "
           "host:port. Empty: no endpoint.")
          .MayChange(),
      Text("metrics.teacher_listen",
           &c.metrics.teacher_listen,
           "Address of the Prometheus endpoint of a teacher worker, as "
           "host:port. Empty: no endpoint.")
          .MayChange(),
      Text("metrics.trainer_listen",
           &c.metrics.trainer_listen,
           "Address of the Prometheus endpoint of the trainer, as host:port. "
           "Empty: no endpoint.")
          .MayChange(),
      Any("metrics.allowed_hosts",
          &c.metrics.allowed_hosts,
          "Host names in URLs that the endpoints answer to, in addition to IP "
          "addresses, names without a dot, the machine's own names and the "
          "names of Kubernetes services. Every other name is refused, because "
          "it may be the name of a foreign web page.")
          .MayChange(),
  };
}

std::vector<ConfigKey> LogKeys(Config& c) {
  return {
      OneOf("log.format",
            &c.log.format,
            "Format of the services' log on stderr. text: lines of text. json: "
            "one JSON object per line (docs/watching.md). Errors in a "
            "configuration are logged in the format that the configuration "
            "asks for, if this key can be read.")
          .MayChange(),
      OneOf("log.level",
            &c.log.level,
            "Lowest level of messages that are logged.")
          .MayChange(),
  };
}

std::vector<ConfigKey> SecurityKeys(Config& c) {
  return {
      Any("security.insecure",
          &c.security.insecure,
          "Whether plaintext gRPC connections, from anyone who can reach them, "
          "are allowed on addresses other than loopback.")
          .MayChange(),
      Any("security.insecure_metrics",
          &c.security.insecure_metrics,
          "Whether plaintext HTTP (metrics, health and status, all read-only) "
          "is allowed on addresses other than loopback.")
          .MayChange(),
      Text("security.certificate",
           &c.security.certificate,
           "PEM file with the certificate of this process, followed by "
           "intermediate certificates. The certificate names the role by the "
           "URI spiffe://dapd/ROLE. If the key is given, every gRPC connection "
           "is mutual TLS. The file is read again when it changes.")
          .IsPath()
          .MayChange(),
      Text("security.private_key",
           &c.security.private_key,
           "PEM file with the certificate's private key, which nobody else may "
           "be able to read (mode 600).")
          .IsPath()
          .MayChange(),
      Text("security.ca",
           &c.security.ca,
           "PEM file with the certificate authorities that may issue the "
           "peers' certificates.")
          .IsPath()
          .MayChange(),
      Text("security.token",
           &c.security.token,
           "File with mode 600 that contains the bearer token that this "
           "process presents.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.viewer",
           &c.security.tokens.viewer,
           "File with mode 600 that contains the bearer tokens, one per line, "
           "that a server accepts for the role viewer, which may read health, "
           "status and metrics.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.trainer",
           &c.security.tokens.trainer,
           "File like security.tokens.viewer with the tokens for the role "
           "trainer, which may use workers.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.admin",
           &c.security.tokens.admin,
           "File like security.tokens.viewer with the tokens for the role "
           "admin, which may do everything.")
          .IsPath()
          .MayChange(),
  };
}

}  // namespace dapd
