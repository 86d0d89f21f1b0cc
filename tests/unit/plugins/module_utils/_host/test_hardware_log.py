# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCIe errors, memory errors and machine checks as kernels of several releases print them."""

from __future__ import annotations

import pytest

from ansible_collections.baremetal.dgx.plugins.module_utils._host.hardware_log import (
    AER,
    EDAC,
    MACHINE_CHECK,
    WORDS,
    at,
    most_in,
    parse_faults,
    refusals,
)


@pytest.mark.parametrize(
    ("line", "kind", "where", "corrected"),
    [
        (
            ("nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, "
             "(Receiver ID)"),
            AER, "0000:1b:00.0", True,
        ),
        (
            ("mlx5_core 0000:18:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), "
             "type=Transaction Layer, (Requester ID)"),
            AER, "0000:18:00.0", False,
        ),
        (
            ("nvme 0000:e1:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), "
             "type=Transaction Layer, (Completer ID)"),
            AER, "0000:e1:00.0", False,
        ),
        (
            "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:1b:00.0",
            AER, "0000:1b:00.0", False,
        ),
        (
            ("pcieport 0000:15:01.0: AER: Multiple Correctable error message received from "
             "0000:1b:00.0"),
            AER, "0000:1b:00.0", True,
        ),
        (
            ("EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#1_DIMM#0 (channel:1 slot:0 "
             "page:0x12c4a2 offset:0x0 grain:32)"),
            EDAC, "MC3 CPU_SrcID#0_MC#3_Chan#1_DIMM#0", False,
        ),
        (
            "EDAC MC0: 7 CE memory scrubbing error on CPU_SrcID#0_MC#0_Chan#0_DIMM#1 (channel:0)",
            EDAC, "MC0 CPU_SrcID#0_MC#0_Chan#0_DIMM#1", True,
        ),
        (
            # amd64_edac has no message for most errors.
            ("EDAC MC0: 1 UE on mc#0csrow#0channel#0 (csrow:0 channel:0 page:0x1 offset:0x0 "
             "grain:64)"),
            EDAC, "MC0 mc#0csrow#0channel#0", False,
        ),
        (
            ("EDAC MC0: 1 CE on mc#0csrow#0channel#0 (csrow:0 channel:0 page:0x1 offset:0x0 "
             "grain:64 syndrome:0x0)"),
            EDAC, "MC0 mc#0csrow#0channel#0", True,
        ),
        (
            "EDAC MC0: 1 UE Multi-bit ECC on unknown memory (node:0 card:0 module:0 )",
            EDAC, "MC0 unknown memory", False,
        ),
        (
            "EDAC MC0: 1 UE reserved error (17) on unknown memory (node:0 card:0 module:0 )",
            EDAC, "MC0 unknown memory", False,
        ),
        (
            "EDAC MC0: 1 UE memory read error on any memory (channel:0 slot:0 page:0x0)",
            EDAC, "MC0 any memory", False,
        ),
        (
            "EDAC MC0: 1 UE memory read error on DIMM_A1 or DIMM_A2 (channel:0 )",
            EDAC, "MC0 DIMM_A1 or DIMM_A2", False,
        ),
        (
            "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: cc00008000010093",
            MACHINE_CHECK, "CPU 12 bank 7", True,
        ),
        (
            "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 6: be00000000800400",
            MACHINE_CHECK, "CPU 3 bank 6", False,
        ),
        (
            ("[Hardware Error]: CPU:24 (17:31:0) MC17_STATUS[Over|UE|MiscV|AddrV|-|TCC|SyndV|UECC|"
             "-|-|-]: 0xbc002800000c011b"),
            MACHINE_CHECK, "CPU 24 bank 17", False,
        ),
        (
            ("[Hardware Error]: CPU:24 (17:31:0) MC17_STATUS[-|-|MiscV|AddrV|-|-|SyndV|UECC|"
             "Deferred|-|-]: 0x9c0030000000011b"),
            MACHINE_CHECK, "CPU 24 bank 17", False,
        ),
        (
            ("[Hardware Error]: CPU:24 (1a:2:1) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]"
             ": 0x9c2040000000011b"),
            MACHINE_CHECK, "CPU 24 bank 17", True,
        ),
        (
            # pci_print_aer: what the firmware has read (APEI), here of Linux 4.18.
            "nvme 0000:e1:00.0: aer_status: 0x00000001, aer_mask: 0x00002000",
            AER, "0000:e1:00.0", True,
        ),
        (
            "nvidia 0000:1b:00.0: AER: aer_status: 0x00001000, aer_mask: 0x00002000",
            AER, "0000:1b:00.0", True,
        ),
        (
            # Its status was pushed out, or is in an older log.
            "nvidia 0000:1b:00.0: AER: aer_uncor_severity: 0x00062030",
            AER, "0000:1b:00.0", False,
        ),
        (
            # Bit 44 is Deferred of AMD; Intel counts corrected errors there.
            "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: cc04100000010093",
            MACHINE_CHECK, "CPU 12 bank 7", True,
        ),
    ],
)  # fmt: skip
def test_forms(line: str, kind: str, where: str, corrected: bool) -> None:
    (fault,) = parse_faults(f"2,917,5000001,-;{line}\n")
    assert (fault.kind, fault.where, fault.corrected) == (kind, where, corrected)
    assert fault.uptime_s == 5.000001
    assert any(word in line for word in WORDS)


@pytest.mark.parametrize(
    "line",
    [
        # Names of programs that crash; the first fifteen characters are the kernel's comm.
        "EDAC MC0: 1 UE [7]: segfault at 0 ip 0 error 6 in a on DIMM (channel:0)[11,5+1]",
        (
            "mce: [Hardware [7]: segfault at 0 in mce: [Hardware Error]: CPU 3: Machine Check: 0 "
            "Bank 6: be00000000800400[11,5+1]"
        ),
        (
            "a[7]: segfault at 0 in nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected "
            "(Fatal), type=Physical Layer[11,5+1]"
        ),
        "EDAC MC0: 1 UE : page allocation failure: order:0, mode:0xcc0(GFP_KERNEL) on a (x)",
        (
            "[Hardware Error[7]: segfault at 0 in [Hardware Error]: CPU:24 (17:31:0) MC17_STATUS[-|"
            "UE]: 0xbc002800000c011b[11,5+1]"
        ),
        "[Hardware Error]: Uncorrected, software restartable error.",
        "EDAC MC0: Giving out device to module skx_edac controller",
        "mce: [Hardware Error]: Machine check events logged",
        # The record itself, of a fatal error with status and severity; the kernel panics then.
        "{1}[Hardware Error]:   section_type: PCIe error",
        "{24}[Hardware Error]:   aer_uncor_status: 0x00040000, aer_uncor_mask: 0x00000000",
        "{24}[Hardware Error]:   aer_uncor_severity: 0x00062010",
        "nvidia 0000:1b:00.0: AER: aer_layer=Transaction Layer, aer_agent=Requester ID",
        "a[7]: segfault at 0 in nvidia 0000:1b:00.0: aer_status: 0x1, aer_mask: 0x0[11,5+1]",
        "pcieport 0000:15:01.0: AER: enabled with IRQ 34",
        "nvidia 0000:1b:00.0:    [ 0] RxErr                  (First)",
    ],
)
def test_what_is_none(line: str) -> None:
    assert parse_faults(f"2,917,5000001,-;{line}\n") == []


def test_the_root_port_counts_only_if_the_device_is_silent() -> None:
    root = "pcieport 0000:15:01.0: AER: Corrected error received: 0000:1b:00.0\n"
    device = "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)\n"
    assert len(parse_faults(root)) == 1
    assert [fault.text[:6] for fault in parse_faults(root + device)] == ["nvidia"]
    assert len(parse_faults(root.replace("Corrected", "Uncorrected (Fatal)") + device)) == 2


def test_since_and_spans() -> None:
    line = "[{}] nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (x)"
    log = "\n".join(line.format(f"{when:.1f}") for when in (10, 20, 65, 70, 71, 500))
    faults = parse_faults(log)
    assert len(parse_faults(log, 70.0)) == 3
    assert most_in(faults, 60) == 4
    assert most_in(faults, 1) == 2
    assert most_in([], 60) == 0
    assert at(faults, {"0000:1b:00.0"}) == faults
    assert at(faults, {"0000:1b:00.1"}) == []
    bare = "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (x)\n"
    assert most_in(parse_faults(bare * 3), 60) == 3


HEAD = "nvidia 0000:1b:00.0: PCIe Bus Error: severity={}, type=Transaction Layer, (Requester ID)\n"
NON_FATAL = HEAD.format("Uncorrected (Non-Fatal)")
STATUS = "nvidia 0000:1b:00.0:   device [10de:2330] error status/mask={:08x}/{:08x}\n"
UNSUP_REQ, ACS_VIOL = 20, 21
# Bit positions of aer_uncorrectable_error_string in drivers/pci/pcie/aer.c.
BROKEN = {
    "DLP": 4, "SDES": 5, "TLP": 12, "FCP": 13, "CmpltTO": 14, "CmpltAbrt": 15, "UnxCmplt": 16,
    "RxOF": 17, "MalfTLP": 18, "ECRC": 19, "UncorrIntErr": 22, "BlockedTLP": 23,
    "AtomicOpBlocked": 24, "TLPBlockedErr": 25, "PoisonTLPBlocked": 26,
}  # fmt: skip


@pytest.mark.parametrize("bits", [1 << UNSUP_REQ, 1 << ACS_VIOL, 1 << UNSUP_REQ | 1 << ACS_VIOL])
@pytest.mark.parametrize("severity", ["Uncorrected (Non-Fatal)", "Uncorrectable (Non-Fatal)"])
@pytest.mark.parametrize("prefix", ["", "AER: "])
def test_a_refused_request_is_evidence_and_no_fault(bits: int, severity: str, prefix: str) -> None:
    head = HEAD.format(severity)
    status = STATUS.format(bits, 0).replace("0.0: ", f"0.0: {prefix}")
    (fault,) = parse_faults(head + status)
    assert (fault.corrected, fault.refused, fault.hard) == (False, True, False)
    assert refusals([fault]) == (f"no fault, 1 x request refused: {head.strip()}",)
    root = "pcieport 0000:15:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:1b:00.0\n"
    assert [one.hard for one in parse_faults(root + head + status)] == [False]


@pytest.mark.parametrize("bit", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("beside", [0, 1 << UNSUP_REQ, 1 << ACS_VIOL])
def test_every_other_error_is_a_fault_also_beside_a_refusal(bit: int, beside: int) -> None:
    (fault,) = parse_faults(NON_FATAL + STATUS.format(1 << bit | beside, 0))
    assert (fault.refused, fault.hard) == (False, True)
    assert refusals([fault]) == ()
    # An error that is masked was not reported: the refusal was.
    (fault,) = parse_faults(NON_FATAL + STATUS.format(1 << bit | 1 << UNSUP_REQ, 1 << bit))
    assert fault.refused


def test_a_refusal_needs_its_own_status_and_is_never_a_fatal_error() -> None:
    refused = STATUS.format(1 << UNSUP_REQ, 0)
    fatal = HEAD.format("Uncorrected (Fatal)")
    elsewhere = refused.replace("1b:00.0", "1b:00.1")
    for log in (
        NON_FATAL,
        fatal + refused,
        refused + NON_FATAL,
        NON_FATAL + elsewhere,
        NON_FATAL + STATUS.format(0, 0),
        NON_FATAL + STATUS.format(1 << UNSUP_REQ, 1 << UNSUP_REQ),
        NON_FATAL + STATUS.format(1 << 14, 0) + refused,
    ):
        assert [fault.hard for fault in parse_faults(log)] == [True], log
    # The status is that of the later message.
    both = parse_faults(NON_FATAL + fatal + refused)
    assert [fault.hard for fault in both] == [True, True]
    both = parse_faults(NON_FATAL + refused + NON_FATAL + STATUS.format(1 << 14, 0))
    assert [fault.hard for fault in both] == [False, True]
    corrected = HEAD.format("Corrected")
    assert [fault.hard for fault in parse_faults(corrected + STATUS.format(1, 0))] == [False]


# As ghes and pci_print_aer print it (Linux 5.11, tg3 of a Dell server, without the time).
FIRMWARE = """\
{{1}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5
{{1}}[Hardware Error]: event severity: recoverable
{{1}}[Hardware Error]:  Error 0, type: {kind}
{{1}}[Hardware Error]:   section_type: PCIe error
{{1}}[Hardware Error]:   port_type: 0, PCIe end point
{{1}}[Hardware Error]:   device_id: 0000:1b:00.0
{{1}}[Hardware Error]:   vendor_id: 0x10de, device_id: 0x2330
nvidia 0000:1b:00.0: {aer}aer_status: {status:#010x}, aer_mask: {mask:#010x}
nvidia 0000:1b:00.0: {aer}   [20] UnsupReq               (First)
nvidia 0000:1b:00.0: {aer}aer_layer=Transaction Layer, aer_agent=Requester ID
"""
SEVERITY = "nvidia 0000:1b:00.0: {aer}aer_uncor_severity: {fatal:#010x}\n"
UNCOR_SEVERITY = 0x000EF030


def firmware_first(bits: int, mask: int = 0, fatal: int | None = None, aer: str = "AER: ") -> str:
    """Return the lines of an error; a corrected one has no severity."""
    kind = "corrected" if fatal is None else "recoverable"
    head = FIRMWARE.format(kind=kind, aer=aer, status=bits, mask=mask)
    return head if fatal is None else head + SEVERITY.format(aer=aer, fatal=fatal)


@pytest.mark.parametrize("aer", ["", "AER: "])
def test_what_the_firmware_reads_first_counts(aer: str) -> None:
    for bits, mask, fatal, state in (
        (1 << 12, 0, None, (True, False, False)),
        (1 << 14, 0, UNCOR_SEVERITY, (False, False, True)),
        (1 << 18, 0, UNCOR_SEVERITY, (False, False, True)),
        (1 << UNSUP_REQ, 1 << 16, UNCOR_SEVERITY, (False, True, False)),
        (1 << UNSUP_REQ | 1 << 14, 1 << 14, UNCOR_SEVERITY, (False, True, False)),
        (1 << UNSUP_REQ | 1 << 14, 0, UNCOR_SEVERITY, (False, False, True)),
        # The device treats the refusal as fatal.
        (1 << UNSUP_REQ, 0, UNCOR_SEVERITY | 1 << UNSUP_REQ, (False, False, True)),
        (0, 0, UNCOR_SEVERITY, (False, False, True)),
    ):
        (fault,) = parse_faults(firmware_first(bits, mask, fatal, aer))
        assert (fault.corrected, fault.refused, fault.hard) == state, (bits, mask, fatal)
        assert fault.where == "0000:1b:00.0"
        assert "aer_status" in fault.text


def test_the_severity_is_that_of_the_last_status_of_its_device() -> None:
    corrected = firmware_first(1 << 12)
    lost = firmware_first(1 << 14, fatal=UNCOR_SEVERITY)
    refused = firmware_first(1 << UNSUP_REQ, fatal=UNCOR_SEVERITY)
    for log, hard in (
        (corrected + lost, [False, True]),
        (lost + corrected, [True, False]),
        (refused + lost + refused, [False, True, False]),
        # A device that speaks between the lines of another.
        (corrected + SEVERITY.format(aer="", fatal=0).replace("1b:", "1c:"), [False, True]),
        (NON_FATAL + SEVERITY.format(aer="", fatal=0), [True, True]),
    ):
        assert [fault.hard for fault in parse_faults(log)] == hard, log
