"""Computes which connections NetworkPolicies allow, as a network plugin does."""

import ipaddress
import itertools

from kubernetes_manifests import containers, find, name_of, of_kind, role, workloads

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
HOME = "dapd"
# These addresses are outside the cluster or belong to its nodes; they are no pods.
OUTSIDE = {"internet": "192.0.2.1", "internet by IPv6": "2001:db8::1", "node": "10.0.0.1", "metadata": "169.254.169.254"}
# The possible callers are (namespace, labels of the pod). A stranger at home is a pod that nobody expects. An address may take the place of
# a namespace.
PARTIES = {
    "rollout": (HOME, {NAME: "dapd", COMPONENT: "rollout"}),
    "teacher": (HOME, {NAME: "dapd", COMPONENT: "teacher"}),
    "further-teacher": (HOME, {NAME: "dapd", COMPONENT: "further-teacher"}),
    "trainer": (HOME, {NAME: "dapd", COMPONENT: "trainer"}),
    "viewer": (HOME, {NAME: "dapd", COMPONENT: "viewer"}),
    "download": (HOME, {NAME: "dapd", COMPONENT: "download"}),
    "stranger": (HOME, {}),
    "prometheus": ("monitoring", {NAME: "prometheus"}),
    "outsider": ("default", {NAME: "dapd", COMPONENT: "trainer"}),
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
    **{name: (address, None) for name, address in OUTSIDE.items()},
}
UNUSED_PORT = 65001
HTTPS = 443
# Ports of metrics of the second to the eighth rank in a trainer pod.
PORTS_OF_RANKS = range(9113, 9174, 10)


def selects(selector, labels):
    """Applies a label selector without expressions; None selects nothing, {} everything."""
    assert selector is None or not selector.keys() - {"matchLabels"}, f"not understood: {selector}"
    return selector is not None and all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


def peer_matches(peer, namespace, labels):
    if "ipBlock" in peer:
        # Pods have addresses, too, in one of the private networks.
        address = ipaddress.ip_address(namespace if labels is None else "10.244.0.9")
        inside = [ipaddress.ip_network(block) for block in (peer["ipBlock"]["cidr"], *peer["ipBlock"].get("except", []))]
        return address in inside[0] and not any(address in block for block in inside[1:])
    assert not peer.keys() - {"podSelector", "namespaceSelector"}, f"not understood: {peer}"
    if labels is None:
        return False
    if "namespaceSelector" in peer:
        at_home = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
    else:
        at_home = namespace == HOME
    return at_home and selects(peer.get("podSelector", {}), labels)


def port_matches(entry, port, protocol):
    return entry.get("protocol", "TCP") == protocol and entry.get("port", port) == port


def allowed_by(policies, direction, here, there, port, protocol):
    """`here` is the pod at home whose policies decide; `there` is its peer. Both are as in PARTIES."""
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
    """Returns every (caller, answerer, protocol, port) that the policies of the answerers ("Ingress") or of the callers ("Egress") allow,
    if the policies' pods are at home."""
    policies = of_kind(everything, "NetworkPolicy")
    numbers = {*ports_of(everything).values(), *PORTS_OF_RANKS, 53, HTTPS, 80, UNUSED_PORT, calls_out(everything) or HTTPS}
    ports = {("TCP", port) for port in numbers} | {("UDP", 53)}
    edges = set()
    for caller, answerer in itertools.product(PARTIES, PARTIES):
        here, there = (answerer, caller) if direction == "Ingress" else (caller, answerer)
        for protocol, port in ports:
            if PARTIES[here][0] == HOME and allowed_by(policies, direction, PARTIES[here], PARTIES[there], port, protocol):
                edges.add((caller, answerer, protocol, port))
    return edges


def ports_of(everything):
    """Maps (role, name of the port) to its number."""
    return {
        (role(workload), port["name"]): port["containerPort"]
        for workload in workloads(everything)
        for container in containers(workload)
        for port in container["ports"]
    }


def calls_out(everything):
    """Returns the port on which components/egress-https lets the trainer out, or None without that component."""
    for policy in of_kind(everything, "NetworkPolicy"):
        if "dapd/egress-https" in policy["metadata"].get("annotations", {}):
            (port,) = {port["port"] for rule in policy["spec"]["egress"] if "ipBlock" in rule["to"][0] for port in rule["ports"]}
            return port
    return None


def downloads(everything):
    return any(job["metadata"]["name"] == "dapd-download" for job in of_kind(everything, "Job"))


def needed_edges(everything):
    """Returns the connections that the services need, by the ports of their containers."""
    number = ports_of(everything)
    tcp = [
        ("trainer", "rollout", number["rollout", "grpc"]),
        ("trainer", "teacher", number["teacher", "grpc"]),
        # The policies have these edges also while there is no further teacher.
        ("trainer", "further-teacher", number["teacher", "grpc"]),
        ("prometheus", "further-teacher", number["teacher", "metrics"]),
        # Ranks meet at one port; NCCL then listens on any port.
        *(("trainer", "trainer", port) for port in (*number.values(), *PORTS_OF_RANKS, 53, HTTPS, 80, UNUSED_PORT, calls_out(everything) or HTTPS)),
        ("viewer", "trainer", number["trainer", "grpc"]),
        ("viewer", "trainer", number["trainer", "metrics"]),
        *(("prometheus", role, number[role, "metrics"]) for role in ("rollout", "teacher", "trainer")),
        *(("prometheus", "trainer", port) for port in PORTS_OF_RANKS),
    ]
    resolvers = ["trainer", "viewer"]
    if downloads(everything):
        resolvers.append("download")
        tcp += [("download", "internet", HTTPS), ("download", "internet by IPv6", HTTPS)]
    if outside := calls_out(everything):
        tcp += [("trainer", "internet", outside), ("trainer", "internet by IPv6", outside)]
    tcp += [(caller, "dns", 53) for caller in resolvers]
    edges = {(caller, answerer, "TCP", port) for caller, answerer, port in tcp}
    return edges | {("trainer", "trainer", "UDP", 53)} | {(caller, "dns", "UDP", 53) for caller in resolvers}


def violations(everything):
    """Yields sentences as in kubernetes_policy.py, but none if the set has no policy."""
    # The download brings its own policy, which restricts nothing but the download.
    if not any(name_of(policy) == "NetworkPolicy dapd-default-deny" for policy in of_kind(everything, "NetworkPolicy")):
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
    existing = {*ports_of(everything).values(), *PORTS_OF_RANKS, 53} | ({HTTPS} if downloads(everything) else set()) | {calls_out(everything)} - {None}
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
