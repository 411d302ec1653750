"""What NetworkPolicies let through, worked out the way a network plugin does it."""

import itertools

from kubernetes_manifests import containers, find, name_of, of_kind, role, workloads

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
HOME = "dapd"
# Who might call: (namespace, labels of the pod). A stranger at home is a pod that nobody foresaw.
PARTIES = {
    "rollout": (HOME, {NAME: "dapd", COMPONENT: "rollout"}),
    "teacher": (HOME, {NAME: "dapd", COMPONENT: "teacher"}),
    "trainer": (HOME, {NAME: "dapd", COMPONENT: "trainer"}),
    "viewer": (HOME, {NAME: "dapd", COMPONENT: "viewer"}),
    "stranger": (HOME, {}),
    "prometheus": ("monitoring", {NAME: "prometheus"}),
    "outsider": ("default", {NAME: "dapd", COMPONENT: "trainer"}),
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
}
UNUSED_PORT = 65001


def selects(selector, labels):
    """A label selector without expressions; None selects nothing, {} everything."""
    assert selector is None or not selector.keys() - {"matchLabels"}, f"not understood: {selector}"
    return selector is not None and all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


def peer_matches(peer, namespace, labels):
    assert not peer.keys() - {"podSelector", "namespaceSelector"}, f"not understood: {peer}"
    if "namespaceSelector" in peer:
        at_home = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
    else:
        at_home = namespace == HOME
    return at_home and selects(peer.get("podSelector", {}), labels)


def port_matches(entry, port, protocol):
    return entry.get("protocol", "TCP") == protocol and entry.get("port", port) == port


def allowed_by(policies, direction, here, there, port, protocol):
    """`here` is the pod, at home, whose policies are asked; `there` its peer. Both as in PARTIES."""
    _, labels = here
    applying = [
        policy["spec"]
        for policy in policies
        if selects(policy["spec"]["podSelector"], labels) and direction in policy["spec"]["policyTypes"]
    ]
    if not applying:
        return True
    rules = [rule for spec in applying for rule in spec.get(direction.lower(), [])]
    side = "from" if direction == "Ingress" else "to"
    return any(
        (side not in rule or any(peer_matches(peer, *there) for peer in rule[side]))
        and ("ports" not in rule or any(port_matches(entry, port, protocol) for entry in rule["ports"]))
        for rule in rules
    )


def open_edges(everything, direction):
    """All (caller, answerer, protocol, port) that the policies of the answerers ("Ingress") or of the callers ("Egress") let
    through, where they are ours."""
    policies = of_kind(everything, "NetworkPolicy")
    ports = {("TCP", port) for port in ports_of(everything).values()} | {("TCP", 53), ("UDP", 53), ("TCP", UNUSED_PORT)}
    edges = set()
    for caller, answerer in itertools.product(PARTIES, PARTIES):
        here, there = (answerer, caller) if direction == "Ingress" else (caller, answerer)
        for protocol, port in ports:
            if PARTIES[here][0] == HOME and allowed_by(policies, direction, PARTIES[here], PARTIES[there], port, protocol):
                edges.add((caller, answerer, protocol, port))
    return edges


def ports_of(everything):
    """(role, name of the port) -> number."""
    return {
        (role(workload), port["name"]): port["containerPort"]
        for workload in workloads(everything)
        for container in containers(workload)
        for port in container["ports"]
    }


def needed_edges(everything):
    """The edges that the services have, by the ports of their containers."""
    number = ports_of(everything)
    tcp = [
        ("trainer", "rollout", number["rollout", "grpc"]),
        ("trainer", "teacher", number["teacher", "grpc"]),
        # Ranks meet at one port; NCCL then listens at any.
        *(("trainer", "trainer", port) for port in (*number.values(), 53, UNUSED_PORT)),
        ("viewer", "trainer", number["trainer", "grpc"]),
        ("viewer", "trainer", number["trainer", "metrics"]),
        *(("prometheus", role, number[role, "metrics"]) for role in ("rollout", "teacher", "trainer")),
        ("trainer", "dns", 53),
        ("viewer", "dns", 53),
    ]
    edges = {(caller, answerer, "TCP", port) for caller, answerer, port in tcp}
    return edges | {("trainer", "trainer", "UDP", 53)} | {(caller, "dns", "UDP", 53) for caller in ("trainer", "viewer")}


def violations(everything):
    """Sentences as in kubernetes_policy.py; none where no policy was asked for."""
    if not of_kind(everything, "NetworkPolicy"):
        return
    reached = set()
    for direction in ("Ingress", "Egress"):
        is_open = open_edges(everything, direction)
        ours = 1 if direction == "Ingress" else 0
        needed = {edge for edge in needed_edges(everything) if PARTIES[edge[ours]][0] == HOME}
        for caller, answerer, protocol, port in sorted(needed - is_open):
            yield f"{direction}: {caller} cannot reach {answerer} on {protocol} {port}"
        for caller, answerer, protocol, port in sorted(is_open - needed):
            yield f"{direction}: {caller} can reach {answerer} on {protocol} {port} and has no business there"
        reached |= {edge[1:] for edge in is_open & needed}
    for (role_name, port_name), port in ports_of(everything).items():
        if (role_name, "TCP", port) not in reached:
            yield f"{role_name}'s port {port_name} has no edge"
    existing = {*ports_of(everything).values(), 53}
    ranks = [{"podSelector": {"matchLabels": PARTIES["trainer"][1]}}]
    between_ranks = ({"from": ranks}, {"to": ranks})
    for policy in of_kind(everything, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []) + policy["spec"].get("egress", []):
            if rule in between_ranks:
                continue
            for port in rule.get("ports", [{}]):
                if port.get("port") not in existing:
                    yield f"{name_of(policy)} has an edge for port {port.get('port', 'any')}, which nothing listens on"
    default = find(everything, "NetworkPolicy", "dapd-default-deny")["spec"]
    if default["podSelector"] or set(default["policyTypes"]) != {"Ingress", "Egress"} or {"ingress", "egress"} & default.keys():
        yield "the default is not to deny"
