import json
import os
import signal
import subprocess
from pathlib import Path

from local.child import Child
from local.leftovers import MARK_NAME, end_leftovers, record
from local.processes import fingerprint, session_members, wait_until


def start(*command: str, **env: str) -> subprocess.Popen[bytes]:
    """Start a process as the supervisor would: in a session of its own."""
    return subprocess.Popen(command, start_new_session=True, env={**os.environ, **env})


def test_a_recorded_process_that_outlived_its_run_is_ended(tmp_path: Path) -> None:
    left = start("sleep", "1000")
    child = Child("left", lambda: left, tmp_path / "log")
    child.start()
    record(tmp_path / "processes.json", [child])

    ended = end_leftovers(tmp_path / "processes.json", tmp_path)

    assert ended == ["left"]
    assert left.wait(5) == -signal.SIGTERM
    assert not (tmp_path / "processes.json").exists()


def test_a_stranger_who_has_the_pid_by_now_is_left_alone(tmp_path: Path) -> None:
    stranger = start("sleep", "1000")
    row = {"name": "web", "pid": stranger.pid, "mark": "an earlier start", "signal": 15}
    (tmp_path / "processes.json").write_text(json.dumps([row]))

    ended = end_leftovers(tmp_path / "processes.json", tmp_path)

    assert ended == []
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_the_children_of_a_process_that_is_gone_are_ended_where_they_carry_our_mark(tmp_path: Path) -> None:
    parents = [
        start("/bin/sh", "-c", "sleep 1000 & exit", **{MARK_NAME: str(folder)}) for folder in (tmp_path, tmp_path / "other")
    ]
    codes = [parent.wait() for parent in parents]
    rows = [{"name": f"web{p.pid}", "pid": p.pid, "mark": "gone", "signal": 15} for p in parents]
    (tmp_path / "processes.json").write_text(json.dumps(rows))

    ended = end_leftovers(tmp_path / "processes.json", tmp_path)

    assert codes == [0, 0]
    assert ended == [f"web{parents[0].pid}"]
    assert session_members(parents[0].pid) == []
    (spared,) = session_members(parents[1].pid)
    os.kill(spared, signal.SIGKILL)


def test_a_dead_process_that_nobody_reaped_counts_as_gone() -> None:
    zombie = start("true")

    gone = wait_until(lambda: fingerprint(zombie.pid) is None, 5)

    assert gone
    assert zombie.wait() == 0
