import base64
import os
import shutil
import socket
from pathlib import Path

import pytest

from local.procfile import BadProcfile, read_procfile
from local.state import AlreadyUp, State, is_free, new_ring


def test_ports_are_chosen_once_and_differ(tmp_path: Path) -> None:
    state = State.of(tmp_path)

    web, flower = state.port("web"), state.port("flower")

    assert web != flower
    assert State.of(tmp_path).port("web") == web


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_rings_are_made_once_and_are_private(tmp_path: Path) -> None:
    rings = State.of(tmp_path).rings()

    assert set(rings) == {"DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING"}
    assert State.of(tmp_path).rings() == rings
    assert (tmp_path / ".daybook" / "rings.json").stat().st_mode & 0o777 == 0o600


def test_a_new_ring_holds_one_key_of_32_bytes() -> None:
    key_id, _, key = new_ring().partition(":")

    assert key_id.isalnum()
    assert len(base64.urlsafe_b64decode(key)) == 32


def test_one_folder_takes_one_run(tmp_path: Path) -> None:
    state = State.of(tmp_path)

    with state.locked(), pytest.raises(AlreadyUp, match=str(os.getpid())), state.locked():
        pass

    with state.locked():
        pass  # the first one let go


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps servers elsewhere")
def test_a_copied_checkout_does_not_share_its_originals_servers(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    one = State.of(tmp_path / "one").servers
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)

    two = State.of(tmp_path / "two").servers

    assert two != one
    assert (tmp_path / "two" / ".daybook" / "servers").resolve() == two
    one.rmdir()
    two.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps servers elsewhere")
def test_a_folder_that_was_deleted_begins_from_nothing(tmp_path: Path) -> None:
    """Its keys are gone: what its servers held would open to nobody."""
    before = State.of(tmp_path).servers
    assert State.of(tmp_path).servers == before
    (before / "postgres").mkdir()
    shutil.rmtree(tmp_path / ".daybook")

    after = State.of(tmp_path).servers

    assert after != before
    assert list(after.iterdir()) == []
    shutil.rmtree(before)
    after.rmdir()


def test_a_procfile_is_read_in_order_without_its_release_step(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("# two\nrelease: x\nweb: exec a --port ${PORT:-8000}\n\nworker_bulk: b\n")

    assert read_procfile(tmp_path / "Procfile") == {"web": "exec a --port ${PORT:-8000}", "worker_bulk": "b"}


def test_a_line_of_the_procfile_that_says_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("web: x\nworker\n")

    with pytest.raises(BadProcfile, match="line 2"):
        read_procfile(tmp_path / "Procfile")
