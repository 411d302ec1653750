"""Schemas of the foreign resource definitions that the manifests use. They are strict: an unknown key is an error.

They follow the definitions of KEDA 2, cert-manager 1, the Prometheus operator 0.7x+ and JobSet 0.8+. kubernetes-validate checks Kubernetes'
own kinds and the jobs of a JobSet.
"""

import jsonschema

TEXT = {"type": "string", "minLength": 1}
DURATION = {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"}
COUNT = {"type": "integer", "minimum": 1}
NUMBER_TEXT = {"type": "string", "pattern": r"^\d+(\.\d+)?$"}


def record(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def list_of(items):
    return {"type": "array", "items": items, "minItems": 1}


LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
RELABELING = record(
    ("sourceLabels",),
    sourceLabels=list_of({"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}),
    targetLabel=TEXT,
    replacement=TEXT,
    regex=TEXT,
    action={"enum": ["replace", "keep"]},
)
RULE = record(
    ("expr",),
    alert=TEXT,
    record={"type": "string", "pattern": "^[a-zA-Z_:][a-zA-Z0-9_:]*$"},
    expr=TEXT,
    **{"for": DURATION, "keep_firing_for": DURATION},
    labels=LABELS,
    annotations=LABELS,
) | {"oneOf": [{"required": ["alert"]}, {"required": ["record"]}]}
ISSUER_REFERENCE = record(("name", "kind", "group"), name=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group={"const": "cert-manager.io"})
PRIVATE_KEY = record(
    ("algorithm",), algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]}, size=COUNT, rotationPolicy={"enum": ["Never", "Always"]}
)
SCALING_RULES = record(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    policies=list_of(record(("type", "value", "periodSeconds"), type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds=COUNT)),
)
PROMETHEUS_TRIGGER = record(
    ("type", "metadata"),
    type={"const": "prometheus"},
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=record(("serverAddress", "query", "threshold"), serverAddress=TEXT, query=TEXT, threshold=NUMBER_TEXT),
)

SPECS = {
    ("keda.sh/v1alpha1", "ScaledObject"): record(
        ("scaleTargetRef", "triggers"),
        scaleTargetRef=record(("name",), name=TEXT, kind=TEXT),
        minReplicaCount={"type": "integer", "minimum": 0},
        maxReplicaCount=COUNT,
        pollingInterval=COUNT,
        fallback=record(("failureThreshold", "replicas"), failureThreshold=COUNT, replicas=COUNT),
        advanced=record(horizontalPodAutoscalerConfig=record(behavior=record(scaleUp=SCALING_RULES, scaleDown=SCALING_RULES))),
        triggers=list_of(PROMETHEUS_TRIGGER),
    ),
    ("cert-manager.io/v1", "Issuer"): record(selfSigned=record(), ca=record(("secretName",), secretName=TEXT))
    | {"minProperties": 1, "maxProperties": 1},
    ("cert-manager.io/v1", "Certificate"): record(
        ("secretName", "issuerRef"),
        secretName=TEXT,
        commonName={"type": "string", "maxLength": 64},
        isCA={"type": "boolean"},
        uris=list_of({"type": "string", "pattern": "^spiffe://dapd/(rollout|teacher|trainer|viewer|admin)$"}),
        dnsNames=list_of(TEXT),
        ipAddresses=list_of(TEXT),
        usages=list_of({"enum": ["server auth", "client auth", "digital signature"]}),
        duration=DURATION,
        renewBefore=DURATION,
        privateKey=PRIVATE_KEY,
        issuerRef=ISSUER_REFERENCE,
    ),
    ("monitoring.coreos.com/v1", "PodMonitor"): record(
        ("selector", "podMetricsEndpoints"),
        selector=record(("matchLabels",), matchLabels=LABELS),
        podMetricsEndpoints=list_of(
            record(("port",), port=TEXT, path=TEXT, interval=DURATION, relabelings=list_of(RELABELING))
        ),
    ),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): record(
        ("replicatedJobs",),
        successPolicy=record(("operator",), operator={"enum": ["All", "Any"]}, targetReplicatedJobs=list_of(TEXT)),
        failurePolicy=record(maxRestarts={"type": "integer", "minimum": 0}),
        network=record(enableDNSHostnames={"type": "boolean"}, subdomain=TEXT, publishNotReadyAddresses={"type": "boolean"}),
        suspend={"type": "boolean"},
        replicatedJobs=list_of(record(("name", "template"), name=TEXT, replicas=COUNT, template=record(("spec",), spec={"type": "object"}))),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): record(
        ("groups",), groups=list_of(record(("name", "rules"), name=TEXT, interval=DURATION, rules=list_of(RULE)))
    ),
}


def is_foreign(entry):
    return (entry["apiVersion"], entry["kind"]) in SPECS


def validate(entry):
    """Raises jsonschema.ValidationError."""
    schema = record(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion=TEXT,
        kind=TEXT,
        metadata=record(("name", "namespace"), name=TEXT, namespace=TEXT, labels=LABELS, annotations=LABELS),
        spec=SPECS[entry["apiVersion"], entry["kind"]],
    )
    jsonschema.Draft202012Validator(schema).validate(entry)
