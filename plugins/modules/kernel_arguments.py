#!/usr/bin/python

# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_arguments
short_description: Keep arguments of the kernel's command line as declared
description:
  - Writes the arguments where the boot loader takes them from, and tells whether the running kernel
    has them. It never reboots.
  - On Debian and Ubuntu this is a file in C(/etc/default/grub.d), on Enterprise Linux the entries
    are changed by C(grubby). Arguments that others have set are left alone.
  - While a reboot is pending, C(/run/baremetal-dgx/reboot-required) says why. It is gone after the
    reboot.
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
  idempotent:
    support: full
options:
  arguments:
    description: Arguments, each one word. What was declared once and no longer is goes away.
    type: list
    elements: str
    default: []
  removed:
    description: Arguments that must not be there, whoever set them; C(NAME=*) for any value.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Let the IOMMU pass devices through, and show the kernel's messages at boot
  baremetal.dgx.kernel_arguments:
    arguments: [iommu=pt, init_on_alloc=0]
    removed: [quiet, splash]
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode, in order.
  returned: success
  type: list
  elements: str
missing:
  description: Declared arguments that the running kernel does not have.
  returned: success
  type: list
  elements: str
unwanted:
  description: Arguments that the running kernel has and must not have.
  returned: success
  type: list
  elements: str
reboot_needed:
  description: Whether the running kernel differs from what is declared.
  returned: success
  type: bool
running_steps:
  description: Steps of Slurm jobs on this node, which a reboot would kill. Looked for only when a
    reboot is needed.
  returned: success
  type: list
  elements: str
"""

import contextlib
import os
import tempfile
from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.baremetal.dgx.plugins.module_utils._kernel_arguments import (
    bad_arguments,
    grub_drop_in,
    grub_words,
    grubby_words,
    missing,
    running_steps,
    split_line,
    unwanted,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._run import (
    CommandRunner,
    ModuleRunner,
    ToolError,
)

# Late in the order of names: what others set is there to be seen.
_DROP_IN = "/etc/default/grub.d/99-baremetal-dgx.cfg"
_GRUB_CONFIG = "/boot/grub/grub.cfg"
_RECORD = "/var/lib/baremetal-dgx/kernel_arguments"
_MARKER = "/run/baremetal-dgx/reboot-required"
_LOADER_TIMEOUT_S = 300

ARGUMENT_SPEC: dict[str, Any] = {
    "arguments": {"type": "list", "elements": "str", "default": []},
    "removed": {"type": "list", "elements": "str", "default": []},
}


def read(path: str) -> str | None:
    """The content of a file, None when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def replace(path: str, content: str) -> None:
    """Write a file atomically, readable for all."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".baremetal-dgx.")
    with os.fdopen(number, "w", encoding="utf-8") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.chmod(temporary, 0o644)
    os.rename(temporary, path)


class Grub:
    """The boot loader of Debian and Ubuntu."""

    def __init__(
        self, run: CommandRunner, arguments: Sequence[str], removed: Sequence[str]
    ) -> None:
        self.run = run
        self.arguments = arguments
        self.removed = removed
        self.wanted = grub_drop_in(arguments, removed)

    def problems(self) -> list[str]:
        """What keeps grub.cfg from being what is declared, empty when nothing does."""
        words = grub_words(read(_GRUB_CONFIG) or "")
        if words is None:
            return [f"{_GRUB_CONFIG} has no entry"]
        found = [f"{word} is not in {_GRUB_CONFIG}" for word in missing(words, self.arguments)]
        found += [f"{word} is in {_GRUB_CONFIG}" for word in unwanted(words, self.removed)]
        return found

    def plan(self) -> list[str]:
        """What has to be done."""
        have = read(_DROP_IN)
        if have is None and not self.arguments and not self.removed:
            return []
        actions = [] if have == self.wanted else [f"write {_DROP_IN}"]
        if actions or self.outdated() or self.problems():
            actions.append("update-grub")
        return actions

    def outdated(self) -> bool:
        """Whether grub.cfg is older than our file: a run was killed between the two."""
        try:
            return os.stat(_GRUB_CONFIG).st_mtime < os.stat(_DROP_IN).st_mtime
        except FileNotFoundError:
            return True

    def apply(self, actions: Sequence[str]) -> None:
        """Do it; raises ToolError when the boot loader does not take it."""
        if not actions:
            return
        if read(_DROP_IN) != self.wanted:
            replace(_DROP_IN, self.wanted)
        answer = self.run(["update-grub"], timeout_s=_LOADER_TIMEOUT_S)
        if not answer.ok:
            raise ToolError(f"the boot loader's configuration cannot be made: {answer.describe()}")
        problems = self.problems()
        if problems:
            raise ToolError(
                "update-grub did not take what is declared: " + "; ".join(problems)
                + "; look for a later file in /etc/default/grub.d"
            )  # fmt: skip


class Grubby:
    """The boot loader entries of Enterprise Linux."""

    def __init__(
        self, run: CommandRunner, arguments: Sequence[str], removed: Sequence[str]
    ) -> None:
        self.run = run
        self.arguments = list(arguments)
        self.removed = list(removed)
        # What this module has set before and is no longer declared goes away.
        self.record = (read(_RECORD) or "").split()
        self.dropped = [word for word in self.record if word not in self.arguments]

    def words(self) -> list[list[str]]:
        """The arguments of each kernel."""
        answer = self.run(["grubby", "--info=ALL"])
        if not answer.ok:
            raise ToolError(f"the boot loader's entries cannot be read: {answer.describe()}")
        return grubby_words(answer.out)

    def plan(self) -> list[str]:
        """What has to be done."""
        if not (self.arguments or self.removed or self.record):
            return []
        add: list[str] = []
        remove: list[str] = []
        for words in self.words():
            add += missing(words, self.arguments)
            remove += unwanted(words, [*self.removed, *self.dropped])
        actions = [f"add {word}" for word in dict.fromkeys(add)]
        actions += [f"remove {word}" for word in dict.fromkeys(remove)]
        return actions

    def apply(self, actions: Sequence[str]) -> None:
        """Do it; the record holds what may have been set before it is set."""
        if self.record != self.arguments and (self.arguments or self.record):
            replace(_RECORD, "".join(f"{w}\n" for w in [*self.arguments, *self.dropped]))
        if actions:
            command = ["grubby", "--update-kernel=ALL"]
            add = [action[4:] for action in actions if action.startswith("add ")]
            remove = [action[7:] for action in actions if action.startswith("remove ")]
            command += [f"--args={' '.join(add)}"] if add else []
            command += [f"--remove-args={' '.join(remove)}"] if remove else []
            answer = self.run(command, timeout_s=_LOADER_TIMEOUT_S)
            if not answer.ok:
                raise ToolError(answer.describe())
            left = self.plan()
            if left:
                raise ToolError(f"grubby ended with 0 but left to do: {'; '.join(left)}")
        if self.dropped:
            replace(_RECORD, "".join(f"{word}\n" for word in self.arguments))


def loader(
    module: AnsibleModule, run: CommandRunner, arguments: Sequence[str], removed: Sequence[str]
) -> Grub | Grubby | None:
    """The boot loader of this node; None when nothing is declared and there is none."""
    if module.get_bin_path("grubby"):
        return Grubby(run, arguments, removed)
    if module.get_bin_path("update-grub"):
        return Grub(run, arguments, removed)
    if arguments or removed:
        raise ToolError(
            "there is neither update-grub nor grubby here, so kernel arguments cannot be set; in a "
            "container leave them out"
        )
    return None


def step_titles() -> list[str]:
    """The titles of all processes."""
    titles = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with contextlib.suppress(OSError):
                text = read(f"/proc/{pid}/cmdline") or ""
                titles.append(text.replace("\0", " "))
    return titles


def mark(lacks: Sequence[str], surplus: Sequence[str]) -> None:
    """Say on the node itself that a reboot is pending, or take the word back."""
    if lacks or surplus:
        lines = [f"missing kernel argument {word}\n" for word in lacks]
        lines += [f"unwanted kernel argument {word}\n" for word in surplus]
        if read(_MARKER) != "".join(lines):
            replace(_MARKER, "".join(lines))
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_MARKER)


def main() -> None:
    """Load, plan, apply, report."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    arguments, removed = module.params["arguments"], module.params["removed"]
    run = ModuleRunner(module)
    try:
        bad = bad_arguments([*arguments, *removed])
        if bad:
            raise ToolError(
                "not a kernel argument of one plain word: " + ", ".join(repr(word) for word in bad)
            )
        both = [word for word in arguments if word in removed]
        if both:
            raise ToolError(f"declared and removed at once: {', '.join(both)}")
        boot = loader(module, run, arguments, removed)
        actions = boot.plan() if boot else []
        words = split_line(read("/proc/cmdline") or "")
        lacks, surplus = missing(words, arguments), unwanted(words, removed)
        if not module.check_mode:
            if boot:
                boot.apply(actions)
            mark(lacks, surplus)
    except ToolError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(msg=f"cannot use {error.filename}: {error.strerror}")
    result: dict[str, Any] = {
        "changed": bool(actions),
        "actions": actions,
        "missing": lacks,
        "unwanted": surplus,
        "reboot_needed": bool(lacks or surplus),
        "running_steps": running_steps(step_titles()) if lacks or surplus else [],
    }
    if module._diff and actions:
        result["diff"] = {"prepared": "\n".join(actions) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
