"""A simulator on a real socket, an inbox for its receipts, and a client between them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from simulator.server import Simulator
from tests.simulator.inbox import ACCOUNT, Inbox


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=7, retry_spacing=0.02) as running:
        yield running


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as open_inbox:
        yield open_inbox


@pytest.fixture
def client(simulator: Simulator) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=simulator.url, auth=(ACCOUNT.sid, ACCOUNT.auth_token), timeout=5) as open_client:
        yield open_client
