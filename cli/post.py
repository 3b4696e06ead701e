"""`daybook post`: post an event over HTTP, as an application would."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

import click
import httpx

from cli.environment import NotUp, Trouble, find_running

SEEDED = "class-opening"


@click.command()
@click.option("--url", help="Where the API is; else that of the running `daybook up`.")
@click.option("--key", "api_key", help="The API key; else the seeded one of the running `daybook up`.")
@click.option("--type", "type_", default="class.opening", show_default=True, help="What happened.")
@click.option("--subject", help="The occasion; else a new one, so that each post is a new fact.")
@click.option("--ref", default="m-1842", show_default=True, help="The application's name for the recipient.")
@click.option("--sms", default="+12015550123", show_default=True, help="Where to reach them; '' for the stored address.")
@click.option("--template", default=SEEDED, show_default=True, help="A template's name, or name@version.")
@click.option("--data", multiple=True, metavar="NAME=VALUE", help="A variable of the template; repeatable.")
@click.option("--idempotency-key", help="The event's own key; else it follows from type, subject and ref.")
@click.pass_context
def post(
    context: click.Context,
    *,
    url: str | None,
    api_key: str | None,
    type_: str,
    subject: str | None,
    ref: str,
    sms: str,
    template: str,
    data: Sequence[str],
    idempotency_key: str | None,
) -> None:
    """Post an event and print the answer. Exits with 1 when it was not accepted."""
    base_url, token = _where(url, api_key)
    event = {
        "type": type_,
        "subject": subject or f"c-{secrets.token_hex(3)}",
        "recipient": {"ref": ref} | ({"sms": sms} if sms else {}),
        "template": template,
        "data": _data(data) or ({"class": "Spin 18:00"} if template == SEEDED else {}),
    }
    headers = {"Authorization": f"Bearer {token}", **({"Idempotency-Key": idempotency_key} if idempotency_key else {})}
    try:
        response = httpx.post(f"{base_url}/v1/events", json=event, headers=headers, timeout=30, trust_env=False)
    except httpx.HTTPError as error:
        raise Trouble(f"{base_url} does not answer ({type(error).__name__})") from error
    _print(response)
    context.exit(0 if response.is_success else 1)


def _where(url: str | None, api_key: str | None) -> tuple[str, str]:
    ready: Mapping[str, str] = {} if url and api_key else find_running() or {}
    if not (url or ready) or not (api_key or ready):
        raise Trouble(str(NotUp("no Daybook is up for this checkout: run `daybook up`, or give --url and --key")))
    return (url or ready["base_url"]).rstrip("/"), api_key or ready["api_key"]


def _data(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not (name and given):
            raise click.BadParameter("must be NAME=VALUE", param_hint="--data")
        found[name] = value
    return found


def _print(response: httpx.Response) -> None:
    try:
        answer = response.json()
    except ValueError:
        click.echo(f"{response.status_code}: {response.text[:500]}")
        return
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    if response.is_success:
        click.echo(f"\nsee what becomes of it:\n\n  .venv/bin/daybook trace {answer['event_id']}", err=True)
