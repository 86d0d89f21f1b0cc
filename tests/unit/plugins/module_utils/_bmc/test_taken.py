# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an answer to a package names its task."""

from __future__ import annotations

import json

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._bmc.taken import Taken, read_taken

TASK = "/redfish/v1/TaskService/Tasks/2"
MONITOR = "/redfish/v1/TaskService/TaskMonitors/JID_2"
NEW = [{"MessageId": "UpdateService.1.0.Start", "MessageArgs": ["MultipartPush"]},
       {"MessageId": "Task.1.0.New", "MessageArgs": [TASK]}]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "location", "task"),
    [
        (202, {"@odata.id": TASK}, MONITOR, TASK),
        (202, {"@odata.id": f"https://bmc-01{TASK}"}, None, TASK),
        (200, {"@odata.id": "/redfish/v1/UpdateService", "Messages": NEW}, None, TASK),
        (200, {"@Message.ExtendedInfo": NEW}, None, TASK),
        (202, {"error": {"@Message.ExtendedInfo": NEW}}, MONITOR, TASK),
        (202, {"Messages": [None, {"MessageArgs": None}, {"MessageArgs": [7]}]}, MONITOR, MONITOR),
        (202, None, f"https://bmc-01{MONITOR}", MONITOR),
        (202, None, "/redfish/v1/Oem/Jobs/7", "/redfish/v1/Oem/Jobs/7"),
        # The place of a file that was stored.
        (201, None, "/redfish/v1/UpdateService/FirmwareInventory/Available-1", ""),
        (200, {"@odata.id": "/redfish/v1/UpdateService", "error": "", "Messages": {}}, None, ""),
        (200, [TASK], None, ""),
        (204, None, None, ""),
        (202, None, None, ""),
    ],
)
def test_the_task_of_an_answer(status, body, location, task):
    text = "" if body is None else json.dumps(body)
    assert read_taken(status, text, location) == Taken(task, status != 202)


def test_an_answer_in_no_json_names_its_task_in_the_header_alone():
    assert read_taken(202, b"<html>", TASK) == Taken(TASK)
