#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> MetricsKeys(Config& c) {
  return {
      Text("metrics.rollout_listen",
           &c.metrics.rollout_listen,
           "Prometheus endpoint of a rollout worker; empty: none.")
          .MayChange(),
      Text("metrics.teacher_listen",
           &c.metrics.teacher_listen,
           "Prometheus endpoint of a teacher worker; empty: none.")
          .MayChange(),
      Text("metrics.trainer_listen",
           &c.metrics.trainer_listen,
           "Prometheus endpoint of the trainer; empty: none.")
          .MayChange(),
      Any("metrics.allowed_hosts",
          &c.metrics.allowed_hosts,
          "Names in URLs that the endpoints answer to, besides IP addresses, "
          "names without a dot, the machine's own and those of Kubernetes "
          "services; any other name is refused, as it may be that of a foreign "
          "web page.")
          .MayChange(),
  };
}

std::vector<ConfigKey> LogKeys(Config& c) {
  return {
      OneOf("log.format",
            &c.log.format,
            "Format of the services' log on stderr: lines of text, or one JSON "
            "object per line (docs/watching.md). Errors in a configuration are "
            "logged in the format that it asks for, if that much of it can be "
            "read.")
          .MayChange(),
      OneOf(
          "log.level", &c.log.level, "Messages below this level are left out.")
          .MayChange(),
  };
}

std::vector<ConfigKey> SecurityKeys(Config& c) {
  return {
      Any("security.insecure",
          &c.security.insecure,
          "Allow plaintext connections, from anyone who can reach them, on "
          "addresses other than loopback.")
          .MayChange(),
      Any("security.insecure_metrics",
          &c.security.insecure_metrics,
          "Allow plaintext HTTP (metrics, health, status: all read-only) on "
          "addresses other than loopback.")
          .MayChange(),
      Text("security.certificate",
           &c.security.certificate,
           "This process's certificate in a PEM file, followed by "
           "intermediates; it names the role by the URI spiffe://dapd/ROLE. If "
           "given, every gRPC connection is mutual TLS. Read again when it "
           "changes.")
          .IsPath()
          .MayChange(),
      Text("security.private_key",
           &c.security.private_key,
           "The certificate's private key in a PEM file that nobody else can "
           "read (mode 600).")
          .IsPath()
          .MayChange(),
      Text("security.ca",
           &c.security.ca,
           "The authorities that may issue peers' certificates, in a PEM file.")
          .IsPath()
          .MayChange(),
      Text("security.token",
           &c.security.token,
           "A file, mode 600, with the bearer token that this process "
           "presents.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.viewer",
           &c.security.tokens.viewer,
           "A file, mode 600, with the bearer tokens, one per line, that a "
           "server accepts for the role viewer, which may read health, status "
           "and metrics.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.trainer",
           &c.security.tokens.trainer,
           "The same for the role trainer, which may use workers.")
          .IsPath()
          .MayChange(),
      Text("security.tokens.admin",
           &c.security.tokens.admin,
           "The same for the role admin, which may do everything.")
          .IsPath()
          .MayChange(),
  };
}

}  // namespace dapd
