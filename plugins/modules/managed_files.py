#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Write a set of files, directories and links in one call, all or nothing
description:
  - Brings a list of paths to their wanted state. Everything is planned and validated before the
    first
    path changes, so that an unknown user, a wrong type or a configuration its own program refuses
    leaves all old files in place.
  - Each file is written beside its target, gets its owner and mode, is synced, and is then renamed
    over
    the target. A reader sees the old file or the new one, never a part.
  - A run killed between two renames leaves files that are old or new; the next run replaces the
    rest.
    Temporary files of killed runs are removed by the next run that changes something in the same
    directory.
  - No link is followed that another user can have made, and no file or directory is taken over that
    another user may have put there. This applies where a directory of the path may be written by
    others than root; the path and the owner are named.
  - Templates and files of the controller are rendered and read there, by the action plugin of the
    same name, so that what a role writes is in its folder C(templates).
  - There are no handlers to lose, M(baremetal.dgx.service_sync) compares what daemons run with to
    what is on disk.
version_added: 1.0.0
author:
  - The baremetal.dgx authors (@baremetal-dgx)
extends_documentation_fragment:
  - baremetal.dgx.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Of secret files only the size is shown.
  idempotent:
    support: full
options:
  files:
    description:
      - The paths, in the order in which they are to be changed. Directories must come before what
        is in them.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. Each path may be given once.
        type: path
        required: true
      state:
        description:
          - V(file) is a regular file with the given content. Without content an existing file keeps
            its own, and a missing one is made empty.
          - V(directory) is a directory; a link that leads to one is accepted.
          - V(absent) means that there is neither file nor link, nor an empty directory; a directory
            with
            something in it is an error.
          - V(link) is a symbolic link; a file in its place is replaced.
        type: str
        choices: [file, directory, absent, link]
        default: file
      content:
        description: The whole content. With state V(absent) it is ignored.
        type: str
      secret_content:
        description: Like O(files[].content), but never shown in output, logs or diff.
        type: str
      template:
        description:
          - Instead of O(files[].content), a template below the folder C(templates) of the role. It
            is rendered as P(ansible.builtin.template#lookup) renders it, and not at all with state
            V(absent).
          - Outside a role it is looked for as M(ansible.builtin.template) does.
        type: str
      vars:
        description: Variables for O(files[].template) alone, besides those of the task.
        type: dict
        default: {}
      source:
        description:
          - Instead of O(files[].content), a text file of the controller. A relative path is one
            below the folder C(files) of the role.
        type: str
      secret:
        description: Whether what O(files[].template) or O(files[].source) makes is a
          O(files[].secret_content).
        type: bool
        default: false
      when:
        description: With V(false) the entry is left out, as if it were not in the list.
        type: bool
        default: true
      encoding:
        description: How O(files[].content) or O(files[].secret_content) is written down; V(base64)
          is for binary keys.
        type: str
        choices: [text, base64]
        default: text
      target:
        description: Where a V(link) points.
        type: str
      owner:
        description: Name or number of the user. Kept as it is when not given.
        type: str
      group:
        description: Name or number of the group. Kept as it is when not given.
        type: str
      mode:
        description:
          - Quoted octal string such as V("0644"). A number is refused, since YAML reads C(0644) as
            420.
          - When not given, it is kept; a new file gets V("0644"), a new secret one V("0600"), a new
            directory V("0755").
        type: raw
      replace:
        description: With V(false) the content is only written when the path does not exist.
        type: bool
        default: true
      unsafe_writes:
        description:
          - Write into the file in place where it is itself a mount point and cannot be renamed
            over
            (C(/etc/hosts) in a container). Not atomic.
        type: bool
        default: false
  validate:
    description:
      - Commands that judge the new files before anything is replaced. They run when content
        changes.
      - Every regular file of the call is staged as C(%(stage)s/<base name>) with mode 0600 in a
        directory only
        root can enter; files that share a base name are staged under their whole path below
        C(%(stage)s).
      - In check mode they run as well. Where a user, group or directory is still missing on the
        host, a
        failure is then only a warning, since an earlier task has merely pretended.
    type: list
    elements: dict
    default: []
    suboptions:
      command:
        description: Command line, split like a shell would but run without one.
        type: str
        required: true
      when_missing:
        description: What to do when the program is not installed. In check mode it is always passed
          over.
        type: str
        choices: [fail, skip]
        default: fail
      reject_output:
        description:
          - Regular expression searched line by line in the output. A match fails the validation
            even when
            the command ends with 0, as some Slurm tools do on errors.
        type: str
      environment:
        description: Environment variables; C(%(stage)s) is replaced in the values, too.
        type: dict
        default: {}
      timeout_s:
        description: Seconds the command may take.
        type: float
        default: 60
  timeout_s:
    description: >-
      Seconds for all of it, without the validations. What takes longer is given up, since it waits
      for a mount that does not answer; the mount is named.
    type: float
    default: 60
seealso:
  - module: baremetal.dgx.service_sync
  - module: ansible.builtin.copy
"""

EXAMPLES = r"""
- name: Write Slurm's configuration, which must agree with itself
  baremetal.dgx.managed_files:
    files:
      - {path: /etc/slurm, state: directory, owner: root, group: root, mode: "0755"}
      - path: /etc/slurm/slurm.conf
        template: etc/slurm/slurm.conf.j2
        vars: {my_nodes: "dgx-[001-064]"}
        owner: root
        group: root
        mode: "0644"
      - path: /etc/munge/munge.key
        secret_content: "{{ my_munge_key_base64 }}"
        encoding: base64
        owner: munge
        group: munge
        mode: "0400"
      - {path: /etc/slurm/old.conf, state: absent}

- name: Never let sshd see a configuration that it would refuse
  baremetal.dgx.managed_files:
    files:
      - path: /etc/ssh/sshd_config
        content: "{{ my_sshd_config }}"
        mode: "0600"
    validate:
      - command: sshd -t -f %(stage)s/sshd_config
"""

RETURN = r"""
changed_paths:
  description: The paths that were changed, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: [/etc/slurm/slurm.conf]
errors:
  description: Everything that is wrong, one sentence each, when nothing was changed because of it.
  returned: on failure, when the plan was refused
  type: list
  elements: str
hung:
  description: Whether it was given up.
  returned: on failure, when it was
  type: bool
validations:
  description: The validation commands that ran, and how each ended (C(passed), C(skipped),
    C(failed)).
  returned: success
  type: list
  elements: dict
  sample: [{"command": "sshd -t -f %(stage)s/sshd_config", "status": "passed"}]
"""

from ansible_collections.baremetal.dgx.plugins.module_utils._core.failures import reported
from ansible_collections.baremetal.dgx.plugins.module_utils._core.hang import LIMIT_S
from ansible_collections.baremetal.dgx.plugins.module_utils._host.files.change import (
    QuietModule,
    change,
    desired,
)

FILE_SPEC = {
    "path": {"type": "path", "required": True},
    "state": {"choices": ["file", "directory", "absent", "link"], "default": "file"},
    "content": {"type": "str"},
    "secret_content": {"type": "str", "no_log": True},
    # These are the action plugin's; none of them comes here.
    "template": {"type": "str"},
    "vars": {"type": "dict", "default": {}},
    "source": {"type": "str"},
    "secret": {"type": "bool", "default": False, "no_log": False},
    "when": {"type": "bool", "default": True},
    "encoding": {"choices": ["text", "base64"], "default": "text"},
    "target": {"type": "str"},
    "owner": {"type": "str"},
    "group": {"type": "str"},
    "mode": {"type": "raw"},
    "replace": {"type": "bool", "default": True},
    "unsafe_writes": {"type": "bool", "default": False},
}
VALIDATE_SPEC = {
    "command": {"type": "str", "required": True},
    "when_missing": {"choices": ["fail", "skip"], "default": "fail"},
    "reject_output": {"type": "str"},
    "environment": {"type": "dict", "default": {}},
    "timeout_s": {"type": "float", "default": 60},
}
ARGUMENT_SPEC = {
    "files": {"type": "list", "elements": "dict", "required": True, "options": FILE_SPEC},
    "validate": {"type": "list", "elements": "dict", "default": [], "options": VALIDATE_SPEC},
    "timeout_s": {"type": "float", "default": LIMIT_S},
}


def main() -> None:
    """Change the files and report."""
    module = QuietModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    with reported(module, {"changed_paths": []}):
        result = change(module, desired(module.params))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
