# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import stat
import sys
import threading

import pytest

from .conftest import podlib

host = podlib("host")
cache = podlib("cache")
progress = podlib("progress")
layout = podlib("layout")


def test_v1_controllers_that_share_a_hierarchy_are_mounted_together():
    text = (
        "12:cpu,cpuacct:/\n9:memory:/x\n5:net_cls,net_prio:/\n4:devices:/\n"
        "3:freezer:/\n2:cpuset:/\n1:name=systemd:/\n0::/"
    )
    assert host.v1_groups(text) == {
        "freezer": "freezer",
        "memory": "memory",
        "devices": "devices",
        "cpuset": "cpuset",
        "cpuacct": "cpu,cpuacct",
    }


def test_pure_v2_host_has_no_v1_controllers():
    assert host.v1_groups("0::/user.slice\n") == {}


def test_written_file_has_its_mode_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    host.write(path, "new\n", 0o600)
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_lock_is_held_by_one_at_a_time(tmp_path):
    shown = progress.Progress("t")
    order = []

    def other():
        with host.locked(shown, tmp_path / "lock", "it"):
            order.append("second")

    with host.locked(shown, tmp_path / "lock", "it"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_waiting_ends_with_an_error():
    with pytest.raises(layout.PodError, match="that: not within 0 s"):
        host.wait_until("that", lambda: False, 0.05, 0.01)


def test_cache_listens_on_the_loopback_only(tmp_path):
    text = cache.cache_config(tmp_path, "/usr/lib/apt-cacher-ng", 23142, "")
    assert "BindAddress: 127.0.0.1\nPort: 23142\n" in text
    assert "Proxy" not in text
    assert "Proxy: http://proxy.example.org:3128\n" in cache.cache_config(
        tmp_path, "/x", 1, "http://proxy.example.org:3128"
    )


def test_failed_command_is_named_with_its_last_lines(capsys):
    script = "print('one'); print('two'); raise SystemExit(3)"
    with pytest.raises(layout.PodError, match=r"(?s)work failed \(exit status 3\).*two"):
        progress.run_visible(
            progress.Progress("t"),
            "work",
            [sys.executable, "-c", script],
            keep=lambda line: line == "one",
        )
    out = capsys.readouterr().out
    assert "work: one" in out
    assert "two" not in out


def test_silence_is_broken(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.2)
    script = "import time; time.sleep(1.5)"
    progress.run_visible(progress.Progress("t"), "work", [sys.executable, "-c", script])
    assert "work: at work (no output yet)" in capsys.readouterr().out


def test_the_package_cache_stays_while_another_pod_comes_up(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "CACHE", tmp_path)
    monkeypatch.setattr(cache.daemons, "stop", lambda _path: True)
    with cache.in_use(), cache.in_use():
        assert not cache.stop_cache()
    assert cache.stop_cache()


def test_two_pods_install_packages_one_after_the_other(monkeypatch, tmp_path):
    wanted, calls = {"runc"}, []

    def apt(_progress, _what, argv, **_options):
        calls.append(argv[0] if "install" not in argv else argv)
        if "install" in argv:
            assert "DPkg::Lock::Timeout=300" in argv
            wanted.clear()

    monkeypatch.setattr(host, "RUN", tmp_path / "run")
    monkeypatch.setattr(host, "os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(host, "missing_packages", lambda _extra, _files: sorted(wanted))
    monkeypatch.setattr(host, "run_visible", apt)
    say = progress.Progress("test")
    pods = [threading.Thread(target=host.install_packages, args=[say]) for _number in range(2)]
    with host.locked(say, tmp_path / "run-packages.lock", "the lock"):
        for pod in pods:
            pod.start()
        assert not calls
    for pod in pods:
        pod.join(30)
    assert len(calls) == 2  # update and install, once
