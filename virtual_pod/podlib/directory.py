# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod's directory of people: two real slapd with TLS, which have the same entries.

Their certificates are of an authority that the pod's state keeps, with the files of the inventory
that name all of it.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

from podlib import ceph, host, nodes
from podlib.layout import Pod, PodError, expect
from podlib.progress import Progress

SERVERS = ("head-01", "login-01")
BASE = "dc=example,dc=org"
PASSWORD = "only-for-reading"
PEOPLE = {"carol": 20001, "dave": 20002, "erin": 20003}
GROUPS = {"people": (20000, ()), "hpc": (20010, ("carol", "dave"))}
# Further people and groups have numbers from here on, and this many are in each group.
MORE, OF_GROUP = 30000, 25
_BOOT = host.CHECKOUT / "virtual_pod" / "directory-boot.sh"
_FOLDER = "/srv/directory"
_ACCOUNTS = "\nslurm_controller_accounts:\n"
_ACCOUNT = "  - {name: hpc, group: hpc}\n"
_LIMIT_S = 600
_CERTIFY = f"""\
set -eu
mkdir -p {_FOLDER}
cd {_FOLDER}
[ -s ca.pem ] || openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority \\
  -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2> /dev/null
for name in "$@"; do
  [ ! -s "$name.pem" ] || continue
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr" \\
    2> /dev/null
  printf 'subjectAltName=DNS:%s' "$name" > san
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \\
    -extfile san -out "$name.pem" 2> /dev/null
done
"""


def entries(key: str, people: int, groups: int) -> Iterator[str]:
    """Yield the directory as LDIF: the named people, and so many more in so many groups."""
    yield f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n"
    yield (
        f"dn: cn=reader,{BASE}\nobjectClass: organizationalRole\n"
        f"objectClass: simpleSecurityObject\ncn: reader\nuserPassword: {PASSWORD}\n"
    )
    more = {f"p{number:05}": MORE + number for number in range(1, people + 1)}
    for name, number in {**PEOPLE, **more}.items():
        yield (
            f"dn: uid={name},{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n"
            f"objectClass: ldapPublicKey\ncn: {name}\nsn: {name}\nuid: {name}\n"
            f"uidNumber: {number}\ngidNumber: 20000\nhomeDirectory: /elsewhere/{name}\n"
            f"sshPublicKey: {key}\n"
        )
    names = list(more)
    kinds = {
        f"g{number:03}": (
            MORE - 1000 + number,
            tuple(names[(number - 1) * OF_GROUP :][:OF_GROUP]),
        )
        for number in range(1, groups + 1)
    }
    for name, (number, members) in {**GROUPS, **kinds}.items():
        yield f"dn: cn={name},{BASE}\nobjectClass: posixGroup\ncn: {name}\n" + (
            f"gidNumber: {number}\n" + "".join(f"memberUid: {one}\n" for one in members)
        )


def variables(pod: Pod, texts: dict[str, str]) -> dict[str, object]:
    """Return path → variables of the inventory for this directory, and for slurmrestd."""
    storage = ceph.has_storage(pod)
    files: dict[str, object] = {
        "group_vars/all/directory.yml": {
            "identity_domain": "example.org",
            "identity_uris": [f"ldaps://{name}" for name in SERVERS],
            "identity_search_base": BASE,
            "identity_bind_dn": f"cn=reader,{BASE}",
            "identity_bind_password": PASSWORD,
            "identity_login_groups": ["hpc"],
            "identity_ca": texts["ca.pem"],
            # A real site has minutes; who looks at a pod does not wait for them.
            "identity_cache_s": 30,
            **({"identity_home": "/cluster/home/%u"} if storage else {}),
        },
        "group_vars/slurm_controllers/slurm_rest.yml": {
            "slurm_rest_enabled": True,
            "slurm_rest_tls": {"certificate": texts["head-01.pem"], "key": texts["head-01.key"]},
        },
    }
    if storage:
        quota = {"fs": ceph.FILE_SYSTEM, "path": "/home", "group": "hpc"}
        files["group_vars/storage_nodes/home_quotas.yml"] = {
            "cephfs_home_quotas": [{**quota, "max_bytes": 64 << 20, "max_files": 10000}]
        }
    return files


def _run(pod: Pod, node: str, script: str, *arguments: str) -> str:
    done = host.podman(
        *("exec", "-i", pod.container(node), "sh", "-s", *arguments),
        data=script, check=False, timeout=_LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise PodError(f"the directory did not start on {node}: {done.stderr.strip()[-1500:]}")
    return str(done.stdout)


def _put(pod: Pod, node: str, name: str, text: str) -> None:
    host.podman(
        *(
            "exec",
            "-i",
            pod.container(node),
            "sh",
            "-c",
            f"mkdir -p {_FOLDER}; cat > {_FOLDER}/{name}",
        ),
        data=text,
    )


def start(progress: Progress, pod: Pod, people: int, groups: int) -> None:
    """Make the directory on both servers, and write the files of the inventory that name it."""
    missing = set(SERVERS) - {node.name for node in pod.nodes}
    if missing:
        raise PodError(f"pod {pod.name} has no {' and no '.join(sorted(missing))}")
    folder = nodes.state_folder(pod.name)
    inventory = folder / "inventory"
    if not inventory.is_dir():
        raise PodError(f"pod {pod.name} has no inventory yet; write it first: pod inventory")
    first, *_others = SERVERS
    with progress.during(lambda: "directory: at work"):
        _run(pod, first, _CERTIFY, *SERVERS)
        names = ["ca.pem", *(f"{name}.{kind}" for name in SERVERS for kind in ("pem", "key"))]
        texts = {name: _run(pod, first, f"cat {_FOLDER}/{name}") for name in names}
        ldif = "\n".join(entries((folder / "id.pub").read_text().strip(), people, groups))
        for name in SERVERS:
            for kind in ("pem", "key"):
                _put(pod, name, f"server.{kind}", texts[f"{name}.{kind}"])
            _put(pod, name, "ca.pem", texts["ca.pem"])
            _put(pod, name, "people.ldif", ldif)
            _run(pod, name, _BOOT.read_text())
    for path, values in variables(pod, texts).items():
        _write(inventory / path, values)
    accounts = inventory / "group_vars/all/slurm_controller.yml"
    text = accounts.read_text()
    if _ACCOUNT not in text:
        expect(text.count(_ACCOUNTS) == 1, f"{accounts} has no slurm_controller_accounts")
        host.write(accounts, text.replace(_ACCOUNTS, _ACCOUNTS + _ACCOUNT))
    count = len(PEOPLE) + people
    progress.say(f"directory of {count} people on {' and '.join(SERVERS)}, in the inventory")


def _write(path: pathlib.Path, values: object) -> None:
    host.make_folder(path.parent)
    # JSON is YAML, too.
    host.write(path, "---\n" + json.dumps(values, indent=2) + "\n")
