"""Checks that every set of objects keeps the schemas of Kubernetes and of its extensions, and the rules of this project."""

import kubernetes_network
import kubernetes_policy
import kubernetes_schemas
import kubernetes_validate

# The oldest version that has everything the manifests use, and the newest known version.
OLDEST, NEWEST = "1.28", kubernetes_validate.latest_version()


def violations(everything):
    return [*kubernetes_policy.violations(everything), *kubernetes_network.violations(everything)]


def validate(entry):
    if kubernetes_schemas.is_foreign(entry):
        kubernetes_schemas.validate(entry)
        for replicated in entry["spec"].get("replicatedJobs", []):
            metadata = {"name": replicated["name"], "namespace": entry["metadata"]["namespace"]}
            validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **replicated["template"]})
        return
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(entry, version, strict=True)
