# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what was found to records: thresholds, comparison, majority, blame. No process."""

from __future__ import annotations

import struct
from itertools import permutations

import pytest
from burned_node import GPUS, H100, burnt, hbm, product

from ansible_collections.baremetal.dgx.plugins.module_utils._burn import judge, thresholds
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.compare import (
    blame_pairs,
    compare,
    slow_pairs,
    systematic,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.judge import judge_burn
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.plan import (
    Settings,
    add,
    key,
    pair_key,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.state import state_from_data
from ansible_collections.baremetal.dgx.plugins.module_utils._burn.watcher import Seen, add_sample


def judged(state, status="fail", **options):
    records = judge_burn("dgx-01", state, lambda _name: None, **options)
    return {(one.subject[-1], one.check) for one in records if one.status == status}


def test_healthy_gpus_pass():
    records = judge_burn("dgx-01", burnt(), lambda _name: None)
    assert {one.status for one in records} == {"pass"}
    watched = next(one for one in records if one.check == "burn.watch")
    assert watched.measured == {"value": 690, "unit": "W"}
    assert watched.text == "690 W, mean; 701 W, most; 66 C, most; 0 MHz, mean"
    assert records[0].evidence == ("PCI 0000:1b:00.0", f"name {H100}", "uuid GPU-0")


def test_thresholds_of_the_model_and_of_the_site():
    state = burnt()
    for address in GPUS:
        product(state, address, 580)
    assert judged(state) == {(str(number), "burn.rate_bf16") for number in range(4)}
    assert judged(state, thresholds={"bf16": 570}) == set()
    thresholds.check_own({"bf16": None})
    assert judged(state, thresholds={"bf16": None}) == judged(state)


def test_slow_though_legal():
    state = burnt()
    product(state, GPUS[2], 570)
    hbm(state, GPUS[1], 2700)
    # 0.88 and 0.93 of the median: products of good GPUs differ that much, memory does not.
    assert judged(state) == {
        ("2", "burn.rate_bf16"),
        ("2", "burn.like_bf16"),
        ("1", "burn.like_hbm"),
    }


@pytest.mark.parametrize(
    ("value", "others", "transfer", "least"),
    [
        (1.0, [1.0] * 4, False, 0.90),
        (1.0, [1.0] * 4, True, 0.95),
        (1.0, [0.9, 0.96, 1.0, 1.04, 1.1], True, 0.8),  # all differ: none is odd
    ],
)
def test_the_threshold_of_a_comparison(value, others, transfer, least):
    assert compare(value, others, transfer) == (1.0, least)


def test_too_few_are_not_compared():
    assert compare(1.0, [1.0, 2.0, 3.0], False) is None


def test_small_products_say_nothing_of_speed():
    assert judged(burnt(settings={"n": 256}), "pass") & {("0", "burn.rate_bf16")} == set()
    assert ("0", "burn.rate_bf16") in judged(burnt(settings={"n": 256}, simulated=True), "pass")


def test_steadiness():
    state = burnt()
    total = state.sums[key(GPUS[3], "gemm_bf16")]
    total.rates = [780.0] * 95 + [500.0] * 5
    assert judged(state) == set()
    total.rates = [780.0] * 90 + [500.0] * 10
    assert judged(state) == {("3", "burn.steady")}


def test_what_nvml_saw():
    state = burnt()
    state.seen[GPUS[0]].throttled = {"hardware thermal slowdown": 4}
    state.seen[GPUS[1]].xids = [43, 63]
    state.seen[GPUS[2]].ecc_last = [1, 3]
    state.seen[GPUS[3]].xids = [43]  # of a process that was killed
    assert judged(state) == {("0", "burn.throttle"), ("1", "burn.xid"), ("2", "burn.ecc")}


WATCHED = {("0", "burn.watch"), ("0", "burn.throttle"), ("0", "burn.xid"), ("0", "burn.ecc")}


@pytest.mark.parametrize(
    ("about_run", "about_gpu"),
    [
        ({"watch_error": "the process that reads NVML ended"}, {}),
        ({}, {"error": "the GPU has fallen off the bus"}),
        ({}, {"samples": 5}),
    ],
)
def test_silence_of_nvml_is_no_pass(about_run, about_gpu):
    state = burnt()
    for one, given in ((state, {"burnt_s": 3600, **about_run}), (state.seen[GPUS[0]], about_gpu)):
        vars(one).update(given)
    for address in GPUS[1:]:
        # A node under load, three seconds each.
        state.seen[address].samples = state.seen[address].throttle_samples = 1200
    missed = judged(state, "not_measured")
    assert {one for one in missed if one[0] == "0"} == WATCHED
    assert bool(missed - WATCHED) is bool(about_run)
    # What was seen before fails all the same.
    state.seen[GPUS[0]].xids = [79]
    state.seen[GPUS[0]].ecc_last = [1]
    assert judged(state) == {("0", "burn.xid"), ("0", "burn.ecc")}
    assert judged(state, "not_measured") == missed - judged(state)


def test_an_xid_without_a_sample_fails():
    state = burnt()
    state.seen[GPUS[0]].samples, state.seen[GPUS[0]].xids = 0, [79]
    assert judged(state) == {("0", "burn.xid")}


def test_xids_that_are_not_watched_are_no_pass():
    state = burnt()
    for number, xids in enumerate(([], [43], [63])):
        state.seen[GPUS[number]].xids = xids
        sample = {"unwatched": "not supported by this GPU", "ecc_uncorrected": 0}
        add_sample(state.seen[GPUS[number]], sample, False)
    assert judged(state, "not_measured") == {("0", "burn.xid"), ("1", "burn.xid")}
    assert judged(state) == {("2", "burn.xid")}


def test_an_xid_of_a_gpu_that_is_not_named_passes_none():
    state = burnt()
    state.seen[""] = Seen(xids=[43])  # of a process that was killed
    assert judged(state, "not_measured") == set()
    state.seen[""].xids.append(79)
    state.seen[GPUS[1]].xids = [63]
    missed = judged(state, "not_measured")
    assert missed == {(str(number), "burn.xid") for number in (0, 2, 3)}
    assert judged(state) == {("1", "burn.xid")}
    records = judge_burn("dgx-01", state, lambda _name: None)
    text = next(one.text for one in records if one.check == "burn.xid")
    assert text == "NVML does not say of which GPU Xid 79 is"


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ([None] * 60, "not_measured"),
        ([None] * 30 + [[]] * 30, "pass"),
        ([None] * 59 + [[]], "not_measured"),
        ([None] * 58 + [["hardware thermal slowdown"], []], "fail"),
        # Of 32 known ones two are 6 %.
        ([None] * 28 + [[]] * 30 + [["hardware thermal slowdown"]] * 2, "fail"),
    ],
)
def test_reasons_that_nvml_does_not_report_are_no_pass(known, status):
    state = burnt()
    state.seen[GPUS[0]] = Seen()
    for throttle in known:
        add_sample(state.seen[GPUS[0]], {"throttle": throttle}, False)
    assert ("0", "burn.throttle") in judged(state, status)
    # The states of earlier versions count every sample.
    data = state.as_data()
    for seen in data["seen"].values():
        del seen["throttle_samples"]
    assert state_from_data(data).seen[GPUS[0]].throttle_samples == 60


@pytest.mark.parametrize(
    ("counts", "status", "grown"),
    [
        ((2, 0), "pass", 0),  # rebooted
        ((0, 3, 0), "fail", 3),
        ((2, 3, 1, 1, 0, 2), "fail", 4),
        ((0, None, 2), "fail", 2),
        ((0, None, 0), "pass", 0),
        ((0, None), "not_measured", None),
        ((0, 1, None), "fail", 1),
        ((None, None), None, None),  # no ECC
    ],
)
def test_new_ecc_errors(counts, status, grown):
    state = burnt()
    seen = state.seen[GPUS[0]]
    seen.ecc_first, seen.ecc_last = [], []
    for count in counts:
        add_sample(seen, {"ecc_uncorrected": count}, False)
    records = judge_burn("dgx-01", state, lambda _name: None)
    found = [one for one in records if one.check == "burn.ecc" and one.subject.endswith("/0")]
    assert [one.status for one in found] == ([status] if status else [])
    if grown is not None:
        assert found[0].measured["value"] == grown


def test_ecc_counts_of_an_earlier_version():
    state = burnt()
    state.seen[GPUS[0]].ecc_first, state.seen[GPUS[0]].ecc_last = [0, 3], [None, None]
    state.seen[GPUS[1]].ecc_first, state.seen[GPUS[1]].ecc_last = [None, None], [None, None]
    assert judged(state, "not_measured") == {("0", "burn.ecc")}
    # One that is resumed goes on counting.
    add_sample(state.seen[GPUS[2]], {"ecc_uncorrected": 1}, False)
    add_sample(state.seen[GPUS[0]], {"ecc_uncorrected": 1}, False)
    assert judged(state) == {("0", "burn.ecc"), ("2", "burn.ecc")}


def test_an_uncorrectable_error_fails_a_crash_does_not():
    state = burnt()
    state.ended[GPUS[0]] = {"reason": "cuda", "text": "x: CUDA_ERROR_ECC_UNCORRECTABLE (214)"}
    state.ended[GPUS[1]] = {"reason": "cuda", "text": "x: CUDA_ERROR_LAUNCH_FAILED (719)"}
    assert judged(state) == {("0", "burn.run")}
    assert judged(state, "not_measured") == {("1", "burn.run")}


def test_no_products_are_no_pass():
    state = burnt()
    del state.sums[key(GPUS[1], "gemm_bf16")]
    assert judged(state, "not_measured") == {("1", "burn.gemm_bf16")}


def test_wrong_bytes_of_copies_fail():
    state = burnt()
    error = {"event": "error", "what": "copy", "word": 7, "bits": "0x20", "wrong_words": 1}
    add(state.sums[key(GPUS[1], "hbm_rate")], error)
    del state.sums[key(GPUS[2], "hbm_rate")]
    not_run = {"event": "not_run", "reason": "out_of_memory", "text": "0 MiB of memory are free"}
    add(state.sum_of(key(GPUS[3], "hbm_rate")), not_run)
    records = judge_burn("dgx-01", state, lambda _name: None)
    found = {one.subject[-1]: one for one in records if one.check == "burn.hbm_rate"}
    assert {gpu: (one.status, one.text) for gpu, one in found.items()} == {
        "0": ("pass", "2.7 GiB read and written by copies"),
        "1": ("fail", "word 7: bits 0x20, 1 wrong words"),
        "2": ("not_measured", "nothing was computed"),
        "3": ("not_measured", "0 MiB of memory are free"),
    }


def test_what_was_found_before_a_gpu_was_left_out_fails():
    state = burnt()
    for address in GPUS[:2]:
        state.left[address] = {"reason": "busy", "text": "processes use it: 4242"}
    add(state.sums[key(GPUS[0], "gemm_bf16")], {"event": "error", "what": "product", "row": 1})
    state.seen[GPUS[0]].xids = [79]
    records = judge_burn("dgx-01", state, lambda _name: None)
    found = [(one.subject[-1], one.check, one.status) for one in records if one.status != "pass"]
    assert found == [
        ("0", "burn.run", "not_measured"),
        ("0", "burn.gemm_bf16", "fail"),
        ("0", "burn.xid", "fail"),
        ("1", "burn.run", "not_measured"),
    ]
    assert len([one for one in records if one.subject[-1] == "1"]) == 1


def test_bad_pairs_with_a_gpu_that_was_left_out_later():
    state = burnt()
    state.settings = Settings(phases=("peers",))
    state.left = {address: {"reason": "busy", "text": "processes use it"} for address in GPUS[1:]}
    error = {"event": "error", "what": "peer", "word": 7, "bits": "0x20", "wrong_words": 1}
    for other in GPUS[1:]:
        add(state.sum_of(pair_key(GPUS[0], other)), error)
    assert judged(state) == {("0", "burn.peers")}


def test_what_two_had_alike_is_systematic_if_one_is_left_out_later():
    state = burnt()
    for address in GPUS:
        error = {"event": "error", "what": "product", "data_set": 0, "sums": "x", "row": 1}
        add(state.sums[key(address, "gemm_bf16")], error)
    state.left = {address: {"reason": "busy", "text": "processes use it"} for address in GPUS[1:]}
    assert judged(state) == set()


def test_gpus_that_nvml_numbers_again_keep_apart():
    """GPU 1 is gone after an interruption: the next ones have got the numbers before theirs."""
    state = burnt()
    state.ended[GPUS[1]] = {"reason": "lost", "text": "NVML no longer knows it"}
    for number, address in enumerate((GPUS[0], *GPUS[2:])):
        state.gpus[address]["index"] = number
    assert judged(state, "not_measured") == {("1", "burn.run")}
    assert ("2", "burn.run") in judged(state, "pass")
    assert ("3", "burn.run") in judged(state, "pass")


def test_cut_short_is_not_measured():
    state = burnt()
    state.state = "interrupted"
    assert {check for _gpu, check in judged(state, "not_measured")} == {"burn.run"}
    # What was seen counts all the same.
    add(state.sums[key(GPUS[2], "gemm_bf16")], {"event": "error", "what": "product", "row": 1})
    assert judged(state) == {("2", "burn.gemm_bf16")}


def test_numbers_of_slots():
    """GPU 0 of the profile is gone: the others keep their numbers, and it has a record."""
    state = burnt()
    slots = ["1a:00.0", "0000:1B:00.0", "43:00.0", "00000000:52:00.0", "61:00.0"]
    state.ended[GPUS[0]] = {"reason": "hang", "text": "printed nothing"}
    assert judged(state, "not_measured", slots=slots) == {("0", "burn.run"), ("1", "burn.run")}
    assert judged(state, "not_measured") == {("0", "burn.run")}


def test_a_slot_without_a_gpu_is_not_measured():
    state = burnt()
    assert judged(state, "not_measured", slots=GPUS) == set()
    gone = GPUS[2]
    for kept in (state.gpus, state.seen, state.sums):
        for name in [one for one in kept if gone in one]:
            del kept[name]
    assert judged(state, "not_measured", slots=GPUS) == {("2", "burn.run")}
    assert {number for number, _check in judged(state, "pass", slots=GPUS)} == {"0", "1", "3"}
    # NVML still counted it, and could not tell its address.
    state.left["index 2"] = {"reason": "lost", "text": "GPU is lost"}
    state.gpus["index 2"] = {"index": 2}
    records = judge_burn("dgx-01", state, lambda _name: None, slots=GPUS)
    (left,) = [one.text for one in records if (one.subject[-1], one.check) == ("2", "burn.run")]
    assert left == "GPU is lost"
    # Who names the GPUs to burn asks for no others.
    state = burnt(settings={"gpus": tuple(GPUS[:2])})
    assert judged(state, "not_measured", slots=GPUS) == set()


def test_a_profile_without_addresses_has_a_count():
    state = burnt()
    assert judged(state, "not_measured", count=4) == set()
    records = judge_burn("dgx-01", state, lambda _name: None, count=5)
    lacking = [(one.subject, one.check, one.text) for one in records if one.status != "pass"]
    text = "4 of 5 GPUs were there when this burn-in ran"
    assert lacking == [("node:dgx-01", "burn.run", text)]
    # Where the slots are known, each has its record; who names the GPUs asks for no others.
    assert judged(state, "not_measured", slots=[*GPUS, "71:00.0"], count=5) == {("4", "burn.run")}
    state = burnt(settings={"gpus": tuple(GPUS[:2])})
    assert judged(state, "not_measured", count=5) == set()


def test_a_gpu_of_another_address_has_no_number_of_a_slot():
    state = burnt()
    slots = [*GPUS[:2], "0c:00.0", GPUS[3]]
    found = [
        (one.check, one.subject) for one in judge_burn("n", state, lambda _: None, slots=slots)
    ]
    assert len(set(found)) == len(found)
    assert judged(state, "not_measured", slots=slots) == {("2", "burn.run")}
    assert ("4", "burn.run") in judged(state, "pass", slots=slots)


def test_majority_of_bits():
    state = burnt()
    state.settings = Settings(phases=("entropy_bf16",))
    good, bad = [7] * 8, [7, 7, 9, 7, 7, 7, 8, 7]  # four rows, then four columns
    files = {"good": struct.pack("<8Q", *good), "bad": struct.pack("<8Q", *bad)}
    for number, address in enumerate(GPUS):
        name = "bad" if number == 3 else "good"
        total = state.sum_of(key(address, "entropy_bf16"))
        add(total, {"event": "beat", "products": 1, "flop": 780e9, "product_ms": 1, "check_ms": 1})
        digest = {"data_set": 0, "digest": name, "algorithm": "a", "file": name, "n": 4}
        add(total, {"event": "digest", **digest})
    records = judge_burn("dgx-01", state, files.get)
    failed = [one for one in records if one.status == "fail" and "entropy" in one.check]
    assert [one.subject for one in failed] == ["gpu:dgx-01/3"]
    assert failed[0].text.endswith("this one differs in 1 rows, the first row 2 column 2")

    # Another kernel gives other bits.
    state.sums[key(GPUS[3], "entropy_bf16")].digests["0"]["algorithm"] = "b"
    assert {one.status for one in judge_burn("n", state, files.get)} == {"pass"}
    # Of two against two, and of one against one, each may be wrong.
    state.sums[key(GPUS[2], "entropy_bf16")].digests["0"].update(digest="bad", algorithm="b")
    assert {one.status for one in judge_burn("n", state, files.get)} == {"pass"}
    state.sums[key(GPUS[2], "entropy_bf16")].digests["0"]["digest"] = "good"
    records = [one for one in judge_burn("n", state, files.get) if one.status != "pass"]
    assert [(one.subject, one.check, one.status) for one in records] == [
        (f"gpu:n/{number}", "burn.entropy_bf16", "not_measured") for number in (2, 3)
    ]
    text = "2 GPUs gave 2 answers to data set 0, and no more than half agree"
    assert {one.text for one in records} == {text}


def test_alike_on_all_is_systematic_only_when_the_same():
    state = burnt()
    for address in GPUS:
        error = {"event": "error", "what": "product", "data_set": 0, "sums": "x", "row": 1}
        add(state.sums[key(address, "gemm_bf16")], error)
    assert systematic(state, GPUS) == {"gemm_bf16"}
    assert judged(state) == set()
    state.sums[key(GPUS[0], "gemm_bf16")].first[0]["sums"] = "y"
    assert systematic(state, GPUS) == set()
    assert len(judged(state)) == 4
    assert systematic(state, GPUS[:1]) == set()


def test_blame():
    assert blame_pairs([]) == {}
    assert set(blame_pairs([("a", "b")])) == {"a", "b"}
    assert set(blame_pairs([("a", "b"), ("b", "a")])) == {"a", "b"}
    assert blame_pairs([("a", "x"), ("x", "b"), ("c", "x")]) == {
        "x": [("a", "x"), ("c", "x"), ("x", "b")]
    }
    two = blame_pairs([("x", "a"), ("x", "b"), ("x", "c"), ("d", "e")])
    assert set(two) == {"x", "d", "e"}


def test_slow_pairs():
    state = burnt()
    for one in GPUS:
        for other in GPUS:
            if one != other:
                slow = (one, other) == (GPUS[0], GPUS[1])
                line = {"event": "beat", "copied": 200 if slow else 385, "copy_ms": 1}
                add(state.sum_of(pair_key(one, other)), line)
    assert slow_pairs(state, GPUS) == {(GPUS[0], GPUS[1]): pytest.approx(200 / 385)}


def test_pairs_of_those_that_are_left():
    state = burnt()
    state.settings = Settings(phases=("peers",))
    state.ended[GPUS[0]] = {"reason": "hang", "text": "printed nothing"}
    for one in GPUS[1:]:
        for other in GPUS[1:]:
            if one != other:
                line = {"event": "beat", "copied": 385, "copy_ms": 1e-6}
                add(state.sum_of(pair_key(one, other)), line)
    assert ("1", "burn.peers") in judged(state, "pass")
    assert judged(state, "not_measured") == {("0", "burn.run"), ("0", "burn.peers")}
    del state.sums[pair_key(GPUS[1], GPUS[2])]
    assert ("3", "burn.peers") in judged(state, "pass")
    assert {("1", "burn.peers"), ("2", "burn.peers")} <= judged(state, "not_measured")


def test_pairs_that_another_gpu_spoils_prove_none_good():
    state = burnt()
    state.settings = Settings(phases=("peers",))
    line = {"event": "beat", "copied": 385, "copy_ms": 1e-6}
    error = {"event": "error", "what": "peer", "word": 7, "bits": "0x20", "wrong_words": 1}
    for pair in permutations(GPUS, 2):
        add(state.sum_of(pair_key(*pair)), line)
    for other in GPUS[1:3]:
        add(state.sum_of(pair_key(GPUS[0], other)), error)
        add(state.sum_of(pair_key(other, GPUS[0])), error)
    assert judged(state) == {("0", "burn.peers")}
    records = judge_burn("dgx-01", state, lambda _name: None)
    passed = {one.subject[-1]: one.text for one in records if one.check == "burn.peers"}
    assert (passed["1"], passed["3"]) == ("4 pairs verified", "6 pairs verified")
    # With the others given up, GPU 1 has no pair but those with the one to blame.
    for other in GPUS[2:]:
        state.ended[other] = {"reason": "hang", "text": "printed nothing"}
        for pair in ((GPUS[1], other), (other, GPUS[1])):
            del state.sums[pair_key(*pair)]
    assert judged(state) == {("0", "burn.peers")}
    assert ("1", "burn.peers") in judged(state, "not_measured")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (H100, "h100"),
        ("NVIDIA H100 PCIe", ""),
        ("NVIDIA H100 NVL", ""),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", ""),
        ("NVIDIA B200", "b200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-PCIE-40GB", ""),
        ("", ""),
    ],
)
def test_models(name, model):
    assert thresholds.model_of(name) == model


NAMES = {
    "h100": H100, "h200": "NVIDIA H200", "b200": "NVIDIA B200", "a100": "NVIDIA A100-SXM4-80GB",
}  # fmt: skip
RATES = {
    "h100": ["bf16", "fp8", "fp16", "tf32", "fp64", "hbm", "down", "up", "peer"],
    "h200": ["bf16", "fp8", "fp16", "tf32", "fp64", "hbm", "down", "up", "peer"],
    "b200": ["hbm", "peer"],
    "a100": ["hbm", "down", "up", "peer"],
}
# What is asked of one model or another.
CHECKS = {
    "burn.rate_bf16", "burn.rate_fp8", "burn.rate_fp16", "burn.rate_tf32", "burn.rate_fp64",
    "burn.rate_hbm", "burn.rate_down", "burn.rate_up", "burn.rate_peer",
}  # fmt: skip


def test_the_rates_that_are_asked():
    assert {model: list(rates) for model, rates in thresholds.RATES.items()} == RATES
    assert {one.check for rates in thresholds.RATES.values() for one in rates.values()} == CHECKS


@pytest.mark.parametrize(
    ("model", "quantity"), [(model, one) for model, rates in RATES.items() for one in rates]
)
def test_each_rate_fails_just_below_its_threshold(monkeypatch, model, quantity):
    state = burnt()
    state.gpus = {address: {**about, "name": NAMES[model]} for address, about in state.gpus.items()}
    least = thresholds.RATES[model][quantity].value
    for rate, found in ((least, set()), (least - 0.2, {f"burn.rate_{quantity}"})):
        monkeypatch.setattr(judge, "rates_of", lambda *_args, rate=rate: {quantity: rate})
        assert {check for _gpu, check in judged(state)} == found


# TFLOP/s and GB/s of whole burn-ins of healthy GPUs (docs/gpu.md, "On real GPUs").
HEALTHY = {
    "h100": {"bf16": 644.8, "fp8": 1188.8, "fp16": 722.9, "tf32": 396.4, "fp64": 60.7,
             "hbm": 2965.5, "down": 55.0, "up": 53.9},
    "h200": {"bf16": 638.1, "fp8": 1191.0, "fp16": 724.5, "tf32": 404.1, "fp64": 62.3,
             "hbm": 4180.3, "down": 55.2, "up": 55.3},
}  # fmt: skip


@pytest.mark.parametrize("model", HEALTHY)
@pytest.mark.parametrize("share", [1.0, 0.93])
def test_real_gpus_pass_and_so_do_those_a_little_slower(model, share):
    for quantity, rate in HEALTHY[model].items():
        assert thresholds.RATES[model][quantity].threshold().holds(share * rate), quantity


def test_every_rate_has_unit_source_and_value():
    for model, rates in thresholds.RATES.items():
        for quantity, question in rates.items():
            assert question.value > 0, (model, quantity)
            transfer = quantity in ("hbm", "up", "down", "peer")
            assert question.unit == ("GB/s" if transfer else "TFLOP/s")
            assert question.source
            assert thresholds.rate_question(model, quantity) == question
            assert question.threshold().holds(question.value)
            assert not question.threshold().holds(question.value * 0.99)
    assert thresholds.rate_question("b200", "fp8") is None
    own = thresholds.rate_question("", "fp8", {"fp8": 1200})
    assert (own.value, own.unit, own.source) == (1200.0, "TFLOP/s", "the inventory")
