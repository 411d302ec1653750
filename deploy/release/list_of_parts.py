"""Writes a release's list of parts as CycloneDX 1.6."""

import datetime
import hashlib
import uuid

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

# Serial numbers are made from names and contents, so a release that is made again has the same serial numbers.
NAMESPACE = uuid.UUID("6f1c1f4e-2b0f-5c1e-9a39-0d3c58b7a1d4")
OWN = ("bin/*", "libexec/*", "lib/libdapd_cuda.so")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_component(folder, name, reference):
    return Component(type=ComponentType.FILE, name=name, bom_ref=f"{reference}#{name}",
                     hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256(folder / name))])


def package_url(part):
    if part.kind == "pypi":
        return PackageURL("pypi", None, part.name, part.version)
    source, version = part.source.split(" ")
    return PackageURL("deb", "debian", part.name, part.version, {"arch": "amd64", "distro": "debian-12", "upstream": f"{source}@{version}"})


def component(folder, part):
    url = package_url(part)
    properties = [Property(name="dapd:source", value=part.source)] if part.source else []
    if not part.files:
        properties.append(Property(name="dapd:use", value="headers, compiled into the programs"))
    licence = part.licence or f"see licences/{part.name}-{part.version}".replace(":", "_")
    return Component(type=ComponentType.LIBRARY, name=part.name, version=part.version, purl=url, bom_ref=url.to_string(),
                     licenses=[DisjunctiveLicense(name=licence)], properties=properties,
                     components=[file_component(folder, name, url.to_string()) for name in sorted(part.files)])


def write_list(path, root, parts, *, version, flavour, time):
    """Writes to `path` the `parts` and the project's own files below `root`, with the SHA-256 of each. `time` is in
    seconds since 1970. Raises an exception if the result is not valid CycloneDX."""
    own = sorted(str(file.relative_to(root)) for pattern in OWN for file in root.glob(pattern))
    reference = f"dapd@{version}?flavour={flavour}"
    program = Component(type=ComponentType.APPLICATION, name="dapd", version=version, bom_ref=reference,
                        properties=[Property(name="dapd:flavour", value=flavour)],
                        components=[file_component(root, name, reference) for name in own])
    timestamp = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
    components = [component(root, part) for part in parts]
    contents = "\n".join(entry.hashes[0].content for one in [program, *components] for entry in sorted(one.components))
    bom = Bom(serial_number=uuid.uuid5(NAMESPACE, f"{reference}\n{contents}"), components=components,
              metadata=BomMetaData(component=program, timestamp=timestamp))
    bom.register_dependency(program, components)
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        raise ValueError(f"the list of parts is not CycloneDX 1.6: {problem}")
    path.write_text(text)
