"""Tests of the store on a network's file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.store import Reader, files
from tests.gpuwatch.store.stored import a_run, feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream

S = 1_000_000_000


class TestNetworkFileSystem:
    MOUNTS = (
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        "30 22 0:50 / /home/a\\040b rw - nfs4 server:/x rw\n"
        "31 22 0:51 / /home rw - xfs /dev/sdb rw\n"
    )

    @pytest.mark.parametrize(
        ("path", "kind"), [("/home/a b/c", "nfs4"), ("/home/a b", "nfs4"), ("/home/other", "xfs"), ("/homely", "ext4")]
    )
    def test_file_system_is_that_of_the_longest_mount_point(self, tmp_path: Path, path: str, kind: str) -> None:
        mountinfo = tmp_path / "mountinfo"
        mountinfo.write_text(self.MOUNTS)
        assert files.file_system(Path(path), mountinfo=mountinfo) == kind

    def test_file_system_is_unknown_without_mounts(self, tmp_path: Path) -> None:
        assert files.file_system(tmp_path, mountinfo=tmp_path / "absent") is None

    def test_store_works_without_a_write_ahead_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "NETWORK_TYPES", frozenset({files.file_system(tmp_path)}))
        store = opened(tmp_path)
        feed(store, stream(5.0, loaded=True))
        store.put_run(a_run())
        assert store.flush()
        assert store.statistics()["journal"] == "delete"
        assert not list(tmp_path.glob("*-wal"))
        with Reader(tmp_path) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S).observes("power_w")
        store.close()
