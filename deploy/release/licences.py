"""Writes the licences of a release's parts, one folder per part."""

import shutil

# This text is for readers of the folder.
SOURCES_AND_TERMS = (
    "Debian's copyright files refer to /usr/share/common-licenses, which is common-licences here.\n\n"
    "The sources of every Debian package, of the very version: `apt-get source NAME=VERSION` by the source package that the list names,\n"
    "or https://snapshot.debian.org/. Libraries under the LGPL are separate files in lib/: another build of one may take its place.\n"
    "For this repository's own programs no licence has been chosen yet.\n")


def write_licences(parts, target):
    for part in parts:
        own = target / f"{part.name}-{part.version}".replace(":", "_")
        own.mkdir(parents=True)
        for file in part.licence_files:
            folder = own
            if str(file).startswith("/usr/share/common-licenses/"):
                folder = target / "common-licences"
            elif file.parent.name not in ("licenses", part.name):
                # Some wheels have files of the same name in several folders.
                folder = own / file.parent.name
            folder.mkdir(exist_ok=True)
            shutil.copy(file, folder / file.name)
